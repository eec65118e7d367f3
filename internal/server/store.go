package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/settings"
)

// meshStore keeps what is written to the mesh: for this ashored alone, or for all that share it.
type meshStore interface {
	config.Store
	// Records are tokens, workloads, revocations, virtual IPs and registrations.
	Records() record.Store
}

var (
	_ meshStore = (*bolt.Store)(nil)
	_ meshStore = (*consul.Store)(nil)
)

// openStore opens the store that the settings name.
func (s *Server) openStore(ctx context.Context, cfg settings.Config) error {
	if !cfg.Store.Shared() {
		s.store = s.home
		return forgetShared(ctx, s.home)
	}
	log := s.log.Named("store")
	options := cfg.Store.ConsulOptions(cfg.MeshConfig.Config.GetTrustDomain())
	shared, err := consul.Open(ctx, consul.Config{Options: options, Replica: settings.MachineName(), Kept: s.home,
		Log: log})
	if err != nil {
		return fmt.Errorf("store (setting store): %w", err)
	}
	s.store = shared
	s.closers = append(s.closers, shared.Close)
	s.run("store", shared.Follow)
	s.report(func() []feed.Problem { return storeExposed(options) })
	s.collect(sharedMetrics(shared))
	return seedShared(ctx, s.home, shared, log)
}

// sharedKey is the record in the state folder of an ashored that has used a store in Consul.
func sharedKey() record.Key { return record.Key{Table: "store", Name: "shared"} }

// seedShared copies the store in the state folder to an empty store in Consul, so that an ashored
// that ran alone becomes the first of several replicas. It does so once. Errors: the store in Consul
// is empty and was not before; an object in the state folder cannot be read.
func seedShared(ctx context.Context, home *bolt.Store, shared *consul.Store, log hclog.Logger) error {
	used, err := home.Records().Get(ctx, sharedKey())
	if err != nil {
		return err
	}
	switch {
	case used.Version != "" && shared.Empty():
		return fmt.Errorf("store: %s is empty, and this ashored has used the store %s: check the settings "+
			"store.address and store.prefix, or restore Consul's snapshot; "+
			"for a new mesh set another folder (setting state)", shared.Name(), used.Value)
	case used.Version != "":
		return nil
	case shared.Empty():
		if err := seed(ctx, home, shared, log); err != nil {
			return fmt.Errorf("copy the store in the state folder to the one in Consul: %w", err)
		}
	}
	if shared.Empty() {
		return nil // nobody has joined yet
	}
	return home.Records().Commit(ctx, record.Write{Key: sharedKey(), Value: []byte(shared.Name())})
}

// seed copies the objects and records of home.
func seed(ctx context.Context, home *bolt.Store, shared *consul.Store, log hclog.Logger) error {
	unusable, err := home.Unusable(ctx)
	if err != nil {
		return err
	}
	if len(unusable) > 0 {
		var names []string
		for _, u := range unusable {
			names = append(names, u.Key.String())
		}
		return fmt.Errorf("this release cannot read %s: delete it with store.kind bolt first (%s)",
			strings.Join(names, ", "), unusable[0].Why)
	}
	objects, err := home.List(ctx, "", "")
	if err != nil {
		return err
	}
	records, err := home.AllRecords(ctx)
	if err != nil {
		return err
	}
	if len(objects)+len(records) == 0 {
		return nil
	}
	from := "ashored, from the store in the state folder of " + settings.MachineName()
	copied, err := shared.Seed(ctx, consul.Contents{From: from, Objects: objects, Records: records})
	if copied {
		log.Info("the store in Consul begins with the content of the one in the state folder",
			"objects", len(objects), "records", len(records))
	}
	return err
}

// forgetShared notes that the store in the state folder is in use.
func forgetShared(ctx context.Context, home *bolt.Store) error {
	used, err := home.Records().Get(ctx, sharedKey())
	if err != nil || used.Version == "" {
		return err
	}
	return home.Records().Commit(ctx, record.Write{Key: used.Key, Version: used.Version})
}
