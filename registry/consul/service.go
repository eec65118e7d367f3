package consul

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/registry"
)

const (
	// serviceGap is the minimum time between two queries about one service: 20 answers a second.
	serviceGap = 50 * time.Millisecond
	// serviceTolerate is higher than catalogTolerate. The catalog watch fails first, so an outage is
	// reported once per datacenter, not per service.
	serviceTolerate = 2
	// maxBlocking limits concurrent blocking service queries over plain HTTP. The other services
	// are polled every pollGap.
	maxBlocking, pollGap = 100, 10 * time.Second
)

// service is one service of a datacenter. The goroutine of syncer.loop owns it.
type service struct {
	name, group string             // immutable
	cancel      context.CancelFunc // ends its watch

	read           bool   // latest is set
	err            string // why it cannot be read; empty if it can
	hidden         bool   // the last answer was empty because the ACL token filtered it
	pendingRemoval bool   // the last answer was empty; see setServices
	latest         converted
}

func (svc *service) update() update {
	return update{Group: svc.group, Items: svc.latest.instances, Problems: svc.latest.problems, Unreadable: !svc.read}
}

// addService starts watching a new service.
func (s *syncer) addService(ctx context.Context, c *catalog, name string) {
	svc := &service{name: name, group: c.at.group(name), cancel: func() {}}
	c.services[name], c.waiting[svc] = svc, true
	s.watchService(ctx, c, svc)
}

// removeService removes a service.
func (s *syncer) removeService(ctx context.Context, c *catalog, svc *service) {
	svc.cancel()
	s.setContent(ctx, c, svc, converted{})
	delete(c.services, svc.name)
	delete(c.waiting, svc)
}

// watchService (re)starts the watch of a service. The first query does not block.
func (s *syncer) watchService(ctx context.Context, c *catalog, svc *service) {
	svc.cancel()
	watchCtx, cancel := context.WithCancel(ctx)
	svc.cancel = cancel
	var delay time.Duration
	if svc.read { // else a server that lags behind would be queried without a pause, see setOwners
		delay = serviceGap
	}
	s.start(watchCtx, watch{
		delay: delay, tolerate: serviceTolerate, gap: serviceGap, maxBackoff: lastBackoff,
		query: func(queryCtx context.Context, index uint64) (answer, func(), error) {
			entries, a, err := s.readInstances(queryCtx, c, svc.name, index)
			if err != nil {
				return answer{}, nil, err
			}
			content := (&converter{o: s.o, at: c.at, name: svc.name, source: s.source}).convert(entries)
			return a, func() { s.setAnswer(ctx, c, svc, content, a) }, nil
		},
		report: func(text string) {
			delete(c.waiting, svc)
			svc.err, c.changed = text, true
		},
	})
}

// readInstances queries a service. With index 0 it returns at once. Otherwise it blocks until a
// change, or polls after pollGap if maxBlocking queries are running.
func (s *syncer) readInstances(
	ctx context.Context, c *catalog, name string, index uint64,
) ([]*api.ServiceEntry, answer, error) {
	q := query{place: c.at, index: index, filter: s.o.instanceFilter()}
	if index != 0 && !s.client.shared() {
		if s.blocking.TryAcquire(1) {
			defer s.blocking.Release(1)
		} else {
			q.index = 0
			if !task.Sleep(ctx, pollGap-rand.N(pollGap/10)) {
				return nil, answer{}, ctx.Err()
			}
		}
	}
	if q.index == 0 {
		if err := c.reads.Acquire(ctx, 1); err != nil {
			return nil, answer{}, err
		}
		defer c.reads.Release(1)
	}
	return s.client.instances(ctx, q, name)
}

// setAnswer applies a response. setServices documents empty responses.
func (s *syncer) setAnswer(ctx context.Context, c *catalog, svc *service, content converted, a answer) {
	delete(c.waiting, svc)
	empty := a.size == 0
	hidden := empty && a.filtered
	c.changed = c.changed || svc.err != "" || hidden != svc.hidden
	svc.err, svc.hidden = "", hidden
	svc.pendingRemoval = empty && !hidden && len(svc.latest.instances) > 0
	if !hidden && !svc.pendingRemoval {
		s.setContent(ctx, c, svc, content)
	}
}

// setContent replaces the content of a service and queues it if it changed. Unchanged parts keep
// their pointers.
func (s *syncer) setContent(ctx context.Context, c *catalog, svc *service, content converted) {
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
	if !same {
		s.post(svc.update())
	}
	s.setOwners(ctx, c, svc, old.ids)
}

// owner is the service of an instance, and the ModifyIndex of the registration.
type owner struct {
	service *service
	index   uint64
}

// setOwners records the instances of a service. When an instance is re-registered under another
// service name, Consul does not wake blocking queries of the old service. So the service with the
// older registration is queried again. Source: Consul, agent/consul/state/catalog.go
// (ensureServiceTxn).
func (s *syncer) setOwners(ctx context.Context, c *catalog, svc *service, former map[instanceID]uint64) {
	for id := range former {
		if c.owners[id].service == svc {
			delete(c.owners, id)
		}
	}
	outdated := map[*service]bool{}
	for id, index := range svc.latest.ids {
		other, found := c.owners[id]
		if found && index < other.index {
			outdated[svc] = true
			continue
		}
		if found {
			outdated[other.service] = true
		}
		c.owners[id] = owner{svc, index}
	}
	for svc := range outdated {
		s.watchService(ctx, c, svc)
	}
}
