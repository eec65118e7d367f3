package server

import (
	"context"
	"fmt"

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

// openStore opens the store that the settings name. An empty store in Consul is created if create
// is true, and else an error.
func (s *Server) openStore(ctx context.Context, create bool) (created bool, err error) {
	if !s.cfg.Store.Shared() {
		s.store = s.home
		return false, nil
	}
	options := s.cfg.Store.ConsulOptions(s.cfg.MeshConfig.Config.GetTrustDomain())
	shared, err := consul.Open(ctx, consul.Config{Options: options, Replica: settings.MachineName(), Kept: s.home,
		Log: s.log.Named("store")})
	if err != nil {
		return false, fmt.Errorf("store (setting store): %w", err)
	}
	s.store, s.shared = shared, shared
	s.closers = append(s.closers, shared.Close)
	s.run("store", shared.Follow)
	s.report(func() []feed.Problem { return exposure("store", "store", options.Address, options.TokenFile) })
	s.collect(sharedMetrics(shared))
	switch {
	case !shared.Empty():
		return false, nil
	case !create:
		return false, fmt.Errorf("the store %s is empty: correct the setting store, restore Consul's snapshot, or create "+
			"the store with \"ashored init\"", shared.Place())
	}
	return true, seed(ctx, s.home, shared)
}

// seed copies the objects and records of home to an empty store in Consul, so that an ashored that
// ran alone becomes the first of several replicas. Errors: an object cannot be read.
func seed(ctx context.Context, home *bolt.Store, shared *consul.Store) error {
	unusable, err := home.Unusable(ctx)
	if err != nil {
		return err
	}
	if len(unusable) > 0 {
		return fmt.Errorf("this release cannot read %s of the store in the state folder: apply a valid version with "+
			"store.kind bolt first (%s)", unusable[0].Key, unusable[0].Why)
	}
	objects, err := home.List(ctx, "", "")
	if err != nil {
		return err
	}
	records, err := home.AllRecords(ctx)
	if err != nil {
		return err
	}
	from := "ashored init, from the state folder of " + settings.MachineName()
	records = append(records, record.Record{Key: record.Key{Table: "store", Name: "created"}, Value: []byte(from)})
	if err := shared.Seed(ctx, from, objects, records); err != nil {
		return fmt.Errorf("create the store %s: %w", shared.Place(), err)
	}
	return nil
}

const (
	// unwritten is what does not work while the store in Consul cannot be written.
	unwritten = "; nothing can be written: no machine can join, revocations apply only on this replica, " +
		"and registrations are not shared"
	// staleCopy is what is wrong while this replica's copy of it cannot be saved.
	staleCopy = "; the copy in the state folder cannot be saved, which is tried again: if ashored restarts while " +
		"Consul is down, it uses an older copy, which lacks the latest revocations"
)

// storeProblems returns why the stores cannot be read or written. If the store in Consul is an
// active source, it reports by itself that it cannot be read.
func (s *Server) storeProblems() (out []feed.Problem) {
	add := func(severity feed.Severity, now config.Outage, text string) {
		if now.Error != "" {
			out = append(out, feed.Problem{Severity: severity, Source: s.store.Name(), Text: now.Error + text, Since: now.Since})
		}
	}
	add(feed.Error, s.home.Outage(), "")
	if s.shared == nil {
		return out
	}
	if now := s.shared.Standing(); now.Error == "" {
		add(feed.Error, s.shared.Refused(), unwritten)
	} else if _, active := s.cfg.Source(s.store.Name()); !active {
		add(feed.Error, now, unwritten)
	}
	add(feed.Warning, s.shared.CopyTrouble(), staleCopy)
	return out
}

// sharedMetrics reports the state of the store in Consul.
func sharedMetrics(store *consul.Store) func(emitFunc) {
	return func(emit emitFunc) {
		reachable := store.Standing().Error == ""
		emit("ashore_store_in_touch", "1 while the shared store can be read.", truth(reachable))
		emit("ashore_store_writable", "1 while the shared store can be read and Consul accepts writes to it.",
			truth(reachable && store.Refused().Error == ""))
		for log, revision := range store.Revisions() {
			emit("ashore_store_sequence",
				"The number of the newest entry that this replica has of a log of the shared store.",
				float64(revision), "log", log)
		}
	}
}
