package consul

import (
	"context"
	"slices"
	"time"
)

const (
	// listGap is how often the datacenters are listed. There is no blocking query for them.
	listGap = time.Minute
	// missingLists is how many consecutive lists must lack a datacenter before it is removed. A
	// restarting server lists only itself at first.
	missingLists = 2
)

// watchDatacenters finds the datacenters of the settings, and starts and stops a watchCatalog for
// each of them.
func (s *syncer) watchDatacenters(ctx context.Context) {
	if len(s.o.Datacenters) == 0 {
		s.setDatacenters(ctx, []string{""})
		return
	}
	s.start(ctx, watch{
		tolerate: 1, gap: listGap, maxBackoff: catalogBackoff,
		query: func(queryCtx context.Context, _ uint64) (answer, func(), error) {
			list, err := s.listDatacenters(queryCtx)
			return answer{}, func() { s.setDatacenters(ctx, list) }, err
		},
		report: func(text string) { s.listErr = text },
	})
}

// listDatacenters returns the selected datacenters. The agent's datacenter is the empty string.
func (s *syncer) listDatacenters(ctx context.Context) ([]string, error) {
	known, err := s.client.datacenters(ctx)
	if err != nil {
		return nil, err
	}
	own, err := s.ownDatacenter(ctx, known)
	if err != nil {
		return nil, err
	}
	list := slices.Clone(s.o.Datacenters)
	if slices.Contains(list, allDatacenters) {
		list = known
	}
	for i, name := range list {
		if name == own {
			list[i] = ""
		}
	}
	return list, nil
}

// ownDatacenter returns the agent's datacenter: the only known one, or else the datacenter of the
// service consul.
func (s *syncer) ownDatacenter(ctx context.Context, known []string) (string, error) {
	if len(known) == 1 {
		return known[0], nil
	}
	entries, _, err := s.client.instances(ctx, query{}, consulService)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if slices.Contains(known, e.Node.Datacenter) {
			return e.Node.Datacenter, nil
		}
	}
	return "", errNoOwnName
}

// setDatacenters starts watching new datacenters, and removes those that Consul does not list any
// more.
func (s *syncer) setDatacenters(ctx context.Context, names []string) {
	listed := map[place]bool{}
	for _, name := range names {
		for _, at := range s.o.placesOf(name) {
			listed[at] = true
			if s.catalogs[at] == nil {
				s.addCatalog(ctx, at)
			}
		}
	}
	for at, c := range s.catalogs {
		if listed[at] {
			c.missing = 0
			continue
		}
		c.missing++
		if c.missing == missingLists {
			s.removeCatalog(c)
		}
	}
	s.datacentersListed, s.listErr = true, ""
}

// placesOf returns the places of a datacenter: one for each namespace of the settings.
func (o *Options) placesOf(datacenter string) (out []place) {
	for _, ns := range o.Namespaces {
		out = append(out, place{Datacenter: datacenter, Namespace: ns, Partition: o.Partition})
	}
	if len(out) == 0 {
		out = append(out, place{Datacenter: datacenter, Partition: o.Partition})
	}
	return out
}
