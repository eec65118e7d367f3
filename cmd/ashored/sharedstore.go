package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

// meshStore keeps what is written to the mesh: for this ashored alone, or for all that share it.
type meshStore interface {
	config.Store
	// Records are what replicas share besides objects.
	Records() record.Store
	// Allocate returns the virtual addresses of services.
	Allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error)
}

var (
	_ meshStore = (*bolt.Store)(nil)
	_ meshStore = (*consul.Store)(nil)
)

// openShared opens the store that the settings name; home is the one in the state folder.
func (p *program) openShared(ctx context.Context, s settings, home *bolt.Store, back *backend, log hclog.Logger) (meshStore, error) {
	if s.Store.Kind == storeBolt {
		return home, nil
	}
	options := s.Store.options(s.mesh.Config.GetTrustDomain())
	shared, err := consul.Open(ctx, consul.Config{Options: options, Replica: machineName(), Kept: home, Log: log})
	if err != nil {
		return nil, fmt.Errorf("store (setting store): %w", err)
	}
	p.close = append(p.close, shared.Close)
	p.run("store", shared.Follow)
	back.more = append(back.more, func() []feed.Problem { return sharedProblems(shared) })
	return shared, nil
}

// sharedProblems tell that the store in Consul cannot be read.
func sharedProblems(s *consul.Store) []feed.Problem {
	now := s.Standing()
	if now.Error == "" {
		return nil
	}
	return []feed.Problem{{Severity: feed.Error, Source: s.Name(), Text: now.Error + "; what it held last stays in use, and nothing can be written: no machine joins, nobody can be revoked", Stale: true, Since: now.Since}}
}
