package consul

import (
	"context"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/registry"
)

const (
	// serviceGap bounds what a service that changes all the time costs: 20 answers a second.
	serviceGap = 50 * time.Millisecond
	// serviceTolerate is higher than catalogTolerate, so that an outage shows as one of the datacenter.
	serviceTolerate = 2
	// maxBlocking is how many queries about services block at once over plain HTTP; pollGap is how often the other
	// services are asked for.
	maxBlocking, pollGap = 100, 10 * time.Second
	// noInstance is a filter that holds for no instance: such an answer has an index and no instances.
	noInstance = `Service.ID == ""`
)

// instanceID identifies an instance in a datacenter.
type instanceID struct{ node, id string }

// service is one service of a datacenter. The goroutine of syncer.loop owns it.
type service struct {
	name, group string             // immutable, like the next two
	cancel      context.CancelFunc // ends watch
	watch       *watch             // nil when the name cannot be a host

	read           bool // Consul has answered
	hidden         bool // the last answer was empty because of the token
	pendingRemoval bool // the last answer was empty; see setServices

	said     converted // the last answer
	items    []registry.Instances
	problems []problem
}

func (svc *service) update() update {
	return update{Group: svc.group, Items: svc.items, Problems: svc.problems, Unreadable: !svc.read}
}

func (svc *service) refresh() {
	if svc.watch != nil {
		svc.watch.refresh()
	}
}

// addService starts watching a service.
func (s *syncer) addService(ctx context.Context, c *catalog, name string) {
	ctx, cancel := context.WithCancel(ctx)
	svc := &service{name: name, group: c.at.group(name), cancel: cancel}
	c.services[name] = svc
	if conv := (converter{o: s.o, at: c.at, name: name}); !dnsname.ValidLabel(strings.ToLower(name)) {
		conv.misnamed()
		s.setInstances(c, svc, conv.out)
		return
	}
	c.waiting[svc] = true
	svc.watch = s.watchService(ctx, c, svc)
	s.running.Go(func() { svc.watch.run(ctx) })
}

// removeService removes a service that Consul does not have any more.
func (s *syncer) removeService(c *catalog, svc *service) {
	svc.cancel()
	s.setInstances(c, svc, converted{})
	delete(c.services, svc.name)
	delete(c.waiting, svc)
	delete(c.failing, svc)
}

// watchService returns the watch for the instances of one service.
func (s *syncer) watchService(ctx context.Context, c *catalog, svc *service) *watch {
	return &watch{
		tolerate: serviceTolerate, gap: serviceGap, maxBackoff: lastBackoff,
		query: func(turn context.Context, index uint64) (answer, error) {
			entries, a, err := s.readInstances(turn, c, svc.name, index)
			if err != nil {
				return a, err
			}
			conv := converter{o: s.o, at: c.at, name: svc.name, source: s.source}
			said := conv.convert(entries)
			s.do(ctx, func() { s.setAnswer(c, svc, said, a) })
			return a, nil
		},
		report: func(ctx context.Context, err error) { s.do(ctx, func() { s.setReadable(c, svc, err) }) },
	}
}

// readInstances reads a service: at once for index zero, else when it has changed.
func (s *syncer) readInstances(
	ctx context.Context, c *catalog, name string, index uint64,
) ([]*api.ServiceEntry, answer, error) {
	q := query{place: c.at, filter: s.o.instanceFilter()}
	for changed := index == 0; !changed; {
		block := s.client.shared() // HTTP/2: all queries share few connections
		if !block {
			select {
			case s.slots <- struct{}{}:
				defer func() { <-s.slots }()
				block = true
			default:
			}
		}
		if block {
			q.index = index
			return s.client.instances(ctx, q, name)
		}
		if err := sleep(ctx, pollGap-rand.N(pollGap/10)); err != nil {
			return nil, answer{}, err
		}
		_, a, err := s.readNow(ctx, c, query{place: c.at, filter: noInstance}, name)
		if err != nil {
			return nil, a, err
		}
		changed = a.index != index
	}
	return s.readNow(ctx, c, q, name)
}

// readNow reads a service without waiting for a change. Few such queries run at once.
func (s *syncer) readNow(ctx context.Context, c *catalog, q query, name string) ([]*api.ServiceEntry, answer, error) {
	select {
	case <-ctx.Done():
		return nil, answer{}, ctx.Err()
	case c.reads <- struct{}{}:
		defer func() { <-c.reads }()
	}
	return s.client.instances(ctx, q, name)
}

// setReadable notes why a service cannot be read; nil: it can.
func (s *syncer) setReadable(c *catalog, svc *service, err error) {
	c.changed = true
	delete(c.waiting, svc)
	delete(c.failing, svc)
	if err != nil {
		c.failing[svc] = s.client.explain(err)
	}
}

// setAnswer handles an answer about a service. See setServices for empty ones.
func (s *syncer) setAnswer(c *catalog, svc *service, said converted, a answer) {
	delete(c.waiting, svc)
	empty := a.size == 0
	if hidden := empty && a.filtered; hidden != svc.hidden {
		svc.hidden, c.changed = hidden, true
	}
	svc.pendingRemoval = empty && !a.filtered && len(svc.items) > 0
	switch {
	case svc.pendingRemoval:
		c.watch.refresh()
	case !svc.hidden:
		s.setInstances(c, svc, said)
	}
}

// setInstances sets what Consul says of a service, and posts it if it has changed. What is equal keeps its pointer.
func (s *syncer) setInstances(c *catalog, svc *service, said converted) {
	was := svc.said.ids
	svc.said, svc.pendingRemoval = said, false
	c.own(svc, was)
	s.publish(svc)
}

// publish posts a service if its content has changed.
func (s *syncer) publish(svc *service) {
	old := make(map[registry.Key]registry.Instances, len(svc.items))
	for _, in := range svc.items {
		old[in.Service.Key] = in
	}
	same := svc.read && reflect.DeepEqual(svc.problems, svc.said.problems) && len(svc.items) == len(svc.said.instances)
	items := make([]registry.Instances, len(svc.said.instances))
	for i, in := range svc.said.instances {
		items[i] = registry.Keep(old[in.Service.Key], in)
		same = same && items[i] == svc.items[i]
	}
	if !same {
		svc.items, svc.problems, svc.read = items, svc.said.problems, true
		s.post(svc.update())
	}
}

// own notes which instances a service has now. When an instance is registered anew under another name, Consul does not
// tell those who wait for its former service: that one is read anew.
// Source: Consul, agent/consul/state/catalog.go (ensureServiceTxn).
func (c *catalog) own(svc *service, was []instanceID) {
	had := make(map[instanceID]bool, len(was))
	for _, id := range was {
		if had[id] = true; c.owners[id] == svc {
			delete(c.owners, id)
		}
	}
	for _, id := range svc.said.ids {
		former := c.owners[id]
		if former != nil && had[id] {
			continue // former has taken it over since
		}
		if former != nil {
			former.refresh()
		}
		c.owners[id] = svc
	}
}
