package consul

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// catalogGap is the minimum time between two catalog queries. Each one makes Consul read every
	// instance.
	catalogGap = 500 * time.Millisecond
	// catalogBackoff is the maximum retry delay. It is short because catalog queries detect when
	// Consul recovers.
	catalogBackoff = 2 * time.Second
	// catalogTolerate is the number of consecutive failures that are ignored. A single failure may
	// be a closed connection.
	catalogTolerate = 1
	// maxReads limits concurrent non-blocking service queries per datacenter.
	maxReads = 8
)

// catalog tracks the services of one datacenter, or of one namespace in Consul Enterprise. The
// goroutine of syncer.loop owns it.
type catalog struct {
	// Immutable.
	at     place
	group  string              // feed group that carries the problems of the datacenter
	cancel context.CancelFunc  // ends all its watches
	reads  *semaphore.Weighted // of maxReads

	index    uint64 // of the last answer; zero: the names of the services are not known
	filtered bool   // the ACL token hides some of the names
	err      string // why the datacenter cannot be reached; empty if it can
	missing  int    // consecutive lists of datacenters that lack it

	services map[string]*service
	waiting  map[*service]bool    // not yet read or failed
	owners   map[instanceID]owner // which service has registered each instance

	changed  bool // problems may be out of date
	problems []problem
}

// delivered reports whether the service list and every service have been read or failed.
func (c *catalog) delivered() bool { return c.index != 0 && len(c.waiting) == 0 }

// addCatalog starts watching a datacenter.
func (s *syncer) addCatalog(ctx context.Context, at place) {
	ctx, cancel := context.WithCancel(ctx)
	c := &catalog{
		at: at, group: "/" + at.title(), cancel: cancel, reads: semaphore.NewWeighted(maxReads),
		services: map[string]*service{}, waiting: map[*service]bool{}, owners: map[instanceID]owner{},
	}
	s.catalogs[at] = c
	s.watchCatalog(ctx, c)
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

// watchCatalog watches the names of all services. It starts and stops a watchService for each of
// them.
func (s *syncer) watchCatalog(ctx context.Context, c *catalog) {
	s.start(ctx, watch{
		tolerate: catalogTolerate, gap: catalogGap, maxBackoff: catalogBackoff,
		query: func(queryCtx context.Context, index uint64) (answer, func(), error) {
			names, a, err := s.client.services(queryCtx, query{place: c.at, index: index, filter: s.o.nameFilter()})
			return answer{index: a.index}, func() { s.setServices(ctx, c, names, a) }, err
		},
		report: func(text string) { s.setError(c, text) },
	})
}

// setError records that a datacenter is unreachable.
func (s *syncer) setError(c *catalog, text string) {
	if c.at.Datacenter != "" {
		text += " (" + c.at.title() + ")"
	}
	if c.err == "" {
		s.log.Warn("Consul is unreachable; keeping its last known services", "datacenter", c.at.title(), "error", text)
	}
	c.changed, c.err = true, text
}

// setServices handles the names of all services. It adds services, and removes them by these rules:
//
//   - An empty response that was filtered by ACLs changes nothing.
//   - Any other empty response is applied with the next catalog response. If Consul lost its data,
//     all removals are then in one batch.
//   - A service that the catalog does not list is removed, unless the catalog was filtered by ACLs
//     and the service has endpoints.
//
// If Consul also lost its ACL tokens, it responds 403, which counts as an outage.
//
// All services are queried again after an outage, because pending queries may use dead connections,
// and after the index moved back (a restored snapshot).
func (s *syncer) setServices(ctx context.Context, c *catalog, names []string, a answer) {
	readAgain := c.err != "" || a.index < c.index
	if c.err != "" {
		s.log.Info("Consul is reachable again", "datacenter", c.at.title())
	}
	c.index, c.filtered, c.err, c.changed = a.index, a.filtered, "", true
	listed := make(map[string]bool, len(names))
	for _, name := range names {
		listed[name] = s.o.selects(name)
	}
	for name, svc := range c.services {
		if svc.pendingRemoval {
			s.setContent(ctx, c, svc, converted{})
		}
		if !listed[name] && (!a.filtered || len(svc.latest.instances) == 0) {
			s.removeService(ctx, c, svc)
		} else if readAgain {
			s.watchService(ctx, c, svc)
		}
	}
	for name, selected := range listed {
		if selected && c.services[name] == nil {
			s.addService(ctx, c, name)
		}
	}
}
