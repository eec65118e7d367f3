package consul

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/registry"
)

const (
	// serviceGap is the minimum time between two queries about one service: 20 answers a second.
	serviceGap = 50 * time.Millisecond
	// serviceTolerate is higher than catalogTolerate, so that an outage is reported for the
	// datacenter.
	serviceTolerate = 2
	// maxBlocking limits concurrent blocking service queries over plain HTTP. The other services
	// are polled every pollGap.
	maxBlocking, pollGap = 100, 10 * time.Second
	// noInstance is a filter that matches no instance. The answer has the index of the service
	// alone.
	noInstance = `Service.ID == ""`
)

// instanceID identifies an instance in a datacenter.
type instanceID struct{ node, id string }

// service is one service of a datacenter. The goroutine of syncer.loop owns it.
type service struct {
	// Immutable.
	name, group string
	cancel      context.CancelFunc // ends watch
	watch       *watch             // nil if the name cannot be a host

	read           bool // latest is set
	hidden         bool // the last answer was empty because the ACL token filtered it
	pendingRemoval bool // the last answer was empty; see setServices
	latest         converted
}

func (svc *service) update() update {
	return update{Group: svc.group, Items: svc.latest.instances, Problems: svc.latest.problems, Unreadable: !svc.read}
}

// refresh re-reads the service.
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
	if !dnsname.ValidLabel(strings.ToLower(name)) {
		s.setContent(c, svc, s.converter(c, name).misnamed())
		return
	}
	c.waiting[svc] = true
	svc.watch = s.watchService(ctx, c, svc)
	s.running.Go(func() { svc.watch.run(ctx) })
}

// removeService removes a service.
func (s *syncer) removeService(c *catalog, svc *service) {
	svc.cancel()
	s.setContent(c, svc, converted{})
	delete(c.services, svc.name)
	delete(c.waiting, svc)
	delete(c.failing, svc)
}

func (s *syncer) converter(c *catalog, name string) *converter {
	return &converter{o: s.o, at: c.at, name: name, source: s.source}
}

// watchService returns the watch for the instances of one service.
func (s *syncer) watchService(ctx context.Context, c *catalog, svc *service) *watch {
	return &watch{
		tolerate: serviceTolerate, gap: serviceGap, maxBackoff: lastBackoff,
		query: func(queryCtx context.Context, index uint64) (answer, error) {
			entries, a, err := s.readInstances(queryCtx, c, svc.name, index)
			if err != nil {
				return answer{}, err
			}
			content := s.converter(c, svc.name).convert(entries)
			s.do(ctx, func() { s.setAnswer(c, svc, content, a) })
			return a, nil
		},
		report: func(ctx context.Context, err error) { s.do(ctx, func() { s.setServiceError(c, svc, err) }) },
	}
}

// readInstances reads a service: at once if index is zero, else when it has changed.
func (s *syncer) readInstances(
	ctx context.Context, c *catalog, name string, index uint64,
) ([]*api.ServiceEntry, answer, error) {
	q := query{place: c.at, index: index, filter: s.o.instanceFilter()}
	for changed := index == 0; !changed; {
		if s.client.shared() {
			return s.client.instances(ctx, q, name)
		}
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
			return s.client.instances(ctx, q, name)
		default: // poll
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
	q.index = 0
	return s.readNow(ctx, c, q, name)
}

// readNow reads a service without waiting for a change.
func (s *syncer) readNow(ctx context.Context, c *catalog, q query, name string) ([]*api.ServiceEntry, answer, error) {
	select {
	case <-ctx.Done():
		return nil, answer{}, ctx.Err()
	case c.reads <- struct{}{}:
		defer func() { <-c.reads }()
	}
	return s.client.instances(ctx, q, name)
}

// setServiceError sets why a service cannot be read; nil if it can again.
func (s *syncer) setServiceError(c *catalog, svc *service, err error) {
	c.changed = true
	delete(c.waiting, svc)
	delete(c.failing, svc)
	if err != nil {
		c.failing[svc] = s.client.explain(err)
	}
}

// setAnswer handles an answer about a service. See setServices for empty ones.
func (s *syncer) setAnswer(c *catalog, svc *service, content converted, a answer) {
	delete(c.waiting, svc)
	empty := a.size == 0
	hidden := empty && a.filtered
	if hidden != svc.hidden {
		svc.hidden, c.changed = hidden, true
	}
	svc.pendingRemoval = empty && !hidden && len(svc.latest.instances) > 0
	switch {
	case svc.pendingRemoval:
		c.watch.refresh()
	case !hidden:
		s.setContent(c, svc, content)
	}
}

// setContent sets the content of a service, and posts it if it has changed. Equal parts keep their
// pointers.
func (s *syncer) setContent(c *catalog, svc *service, content converted) {
	old := svc.latest
	former := make(map[registry.Key]registry.Instances, len(old.instances))
	for _, in := range old.instances {
		former[in.Service.Key] = in
	}
	for i, in := range content.instances {
		content.instances[i] = registry.Keep(former[in.Service.Key], in)
	}
	same := svc.read && slices.Equal(old.instances, content.instances) && slices.Equal(old.problems, content.problems)
	svc.latest, svc.read, svc.pendingRemoval = content, true, false
	c.setOwner(svc, old.ids)
	if !same {
		s.post(svc.update())
	}
}

// setOwner records which instances a service has. former are those that it had. If an instance is
// registered again under another name, Consul does not answer blocking queries about its former
// service. That service is re-read.
// Source: Consul, agent/consul/state/catalog.go (ensureServiceTxn).
func (c *catalog) setOwner(svc *service, former []instanceID) {
	had := make(map[instanceID]bool, len(former))
	for _, id := range former {
		had[id] = true
		if c.owners[id] == svc {
			delete(c.owners, id)
		}
	}
	for _, id := range svc.latest.ids {
		other := c.owners[id]
		if other != nil && had[id] {
			continue // other has taken it over since
		}
		if other != nil {
			other.refresh()
		}
		c.owners[id] = svc
	}
}
