package consul

import (
	"context"
	"time"
)

const (
	// catalogGap is the least time between two answers with all names: Consul reads all instances for one.
	catalogGap = 500 * time.Millisecond
	// catalogBackoff is the longest wait after a failure. There are few catalogs, and they find that Consul is back.
	catalogBackoff = 2 * time.Second
	// catalogTolerate is how many failures in a row do not count as an outage: one may be a closed connection.
	catalogTolerate = 1
	// maxReads is how many queries about services of a datacenter may run at once besides those that block.
	maxReads = 8
)

// catalog is one datacenter, or one namespace of it. The goroutine of syncer.loop owns it.
type catalog struct {
	at     place              // immutable, like the next four
	group  string             // of the problems of the datacenter as a whole
	cancel context.CancelFunc // ends all its watches
	watch  *watch
	reads  chan struct{} // semaphore of maxReads

	listed   bool   // the names of the services are known
	filtered bool   // the token hides some of them
	err      string // why the datacenter cannot be reached; empty: it can
	missing  int    // how many lists of datacenters in a row lack it

	services map[string]*service
	waiting  map[*service]bool // listed, but neither read nor failed
	failing  map[*service]string
	// owners tells which service has an instance.
	owners map[instanceID]*service

	changed  bool // problems may be out of date
	problems []problem
}

// delivered returns whether the datacenter has listed its services, and each was read or failed.
func (c *catalog) delivered() bool { return c.listed && len(c.waiting) == 0 }

// addCatalog starts watching a datacenter.
func (s *syncer) addCatalog(ctx context.Context, at place) {
	ctx, cancel := context.WithCancel(ctx)
	c := &catalog{
		at: at, group: "/" + at.title(), cancel: cancel, reads: make(chan struct{}, maxReads),
		services: map[string]*service{}, waiting: map[*service]bool{}, failing: map[*service]string{},
		owners: map[instanceID]*service{},
	}
	c.watch = s.watchCatalog(ctx, c)
	s.catalogs[at] = c
	s.running.Go(func() { c.watch.run(ctx) })
}

// removeCatalog removes a datacenter with its services.
func (s *syncer) removeCatalog(c *catalog) {
	c.cancel()
	delete(s.catalogs, c.at)
	s.post(update{Group: c.group})
	for _, svc := range c.services {
		s.post(update{Group: svc.group})
	}
	s.log.Info("removed a datacenter that Consul does not list any more", "datacenter", c.at.title())
}

// watchCatalog returns the watch for the names of all services. It starts and stops a watchService for each of them.
func (s *syncer) watchCatalog(ctx context.Context, c *catalog) *watch {
	var last uint64
	return &watch{
		tolerate: catalogTolerate, gap: catalogGap, maxBackoff: catalogBackoff,
		query: func(turn context.Context, index uint64) (answer, error) {
			names, a, err := s.client.services(turn, query{place: c.at, index: index, filter: s.o.nameFilter()})
			if err != nil {
				return a, err
			}
			restored := a.index < last
			last = a.index
			s.do(ctx, func() { s.setServices(ctx, c, names, a, restored) })
			return answer{index: a.index}, nil
		},
		report: func(ctx context.Context, err error) { s.do(ctx, func() { s.setReachable(c, err) }) },
	}
}

// setReachable notes why a datacenter cannot be reached; nil: it can again.
func (s *syncer) setReachable(c *catalog, err error) {
	was := c.err
	c.err, c.changed = "", true
	if err == nil {
		s.log.Info("Consul answers again", "datacenter", c.at.title())
		c.refresh() // what blocks may have missed changes, or wait on a connection that is gone
		return
	}
	if c.err = s.client.explain(err); c.at.Datacenter != "" {
		c.err += " (" + c.at.title() + ")"
	}
	if was == "" {
		s.log.Warn("Consul cannot be reached; its services stay", "datacenter", c.at.title(), "error", c.err)
	}
}

// refresh has all services read anew.
func (c *catalog) refresh() {
	for _, svc := range c.services {
		svc.refresh()
	}
}

// setServices handles the names of all services. It adds services, and removes them by these rules:
//
//   - An empty answer about a service changes nothing if the ACL token filtered it: the service may
//     still have instances.
//   - Any other empty answer is pending until the next catalog answer. So a Consul that lost its data
//     shows as one batch that removes all services.
//   - A service that the catalog does not list is removed, unless the token filtered the catalog and
//     the service has endpoints: it may exist.
//
// A Consul that lost its tokens too answers 403, which is an outage.
func (s *syncer) setServices(ctx context.Context, c *catalog, names []string, a answer, restored bool) {
	c.listed, c.filtered, c.changed = true, a.filtered, true
	listed := make(map[string]bool, len(names))
	for _, name := range names {
		listed[name] = s.o.selects(name)
		if listed[name] && c.services[name] == nil {
			s.addService(ctx, c, name)
		}
	}
	for name, svc := range c.services {
		if svc.pendingRemoval {
			s.setInstances(c, svc, converted{})
		}
		if !listed[name] && (!a.filtered || len(svc.items) == 0) {
			s.removeService(c, svc)
		}
	}
	if restored {
		c.refresh()
	}
}
