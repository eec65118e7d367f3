package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
)

// objectStore keeps objects.
type objectStore interface {
	config.Store
	// Unusable are the objects that List leaves out, as this release cannot read them.
	Unusable(ctx context.Context) ([]storage.Unusable, error)
}

// meshStore keeps what is written to the mesh: for this ashored alone, or for all that share it.
type meshStore interface {
	objectStore
	// Records are what replicas share besides objects.
	Records() record.Store
}

var (
	_ meshStore = (*bolt.Store)(nil)
	_ meshStore = (*consul.Store)(nil)
)

// openShared opens the store that the settings name, which may be the one in the state folder.
func (p *program) openShared(ctx context.Context, s settings, d doors, back *backend, log hclog.Logger) (meshStore,
	error) {
	if s.Store.Kind == storeBolt {
		return d.home, stayHome(ctx, d.home)
	}
	options := s.Store.options(s.mesh.Config.GetTrustDomain())
	shared, err := consul.Open(ctx, consul.Config{Options: options, Replica: machineName(), Kept: d.home, Log: log})
	if err != nil {
		return nil, fmt.Errorf("store (setting store): %w", err)
	}
	p.close = append(p.close, shared.Close)
	p.run("store", shared.Follow)
	back.more = append(back.more, func() []feed.Problem { return exposed(options) })
	if err := d.registry.Register(newSharedMetrics(shared)); err != nil {
		return nil, err
	}
	left, err := moveHome(ctx, d.home, shared, log)
	if err != nil {
		return nil, fmt.Errorf("move what the store in the state folder has into the one in Consul, in which nothing was ever written: %w", err)
	}
	back.more = append(back.more, left.problems)
	return shared, nil
}

// homeStore is the store in the state folder, as another one takes its place.
type homeStore interface {
	meshStore
	// AllRecords are those of all tables.
	AllRecords(ctx context.Context) ([]record.Record, error)
}

// moveHome begins a store in which nothing was ever written with what the one in the state folder
// has, so that an ashored that stood alone becomes the first of several. It does so once: from then
// on what is in the state folder is of the past. What cannot be moved is told, then and at each
// start after it.
func moveHome(ctx context.Context, home homeStore, shared *consul.Store, log hclog.Logger) (*leftBehind, error) {
	objects, err := home.List(ctx, "", "")
	if err != nil {
		return nil, err
	}
	before, err := home.Records().Get(ctx, movedKey())
	if err != nil {
		return nil, err
	}
	if before.Version != "" || !shared.Empty() {
		if len(objects) > 0 {
			log.Info("objects of the store in the state folder are not in use: the setting store names the one in Consul", "objects", len(objects))
		}
		if before.Version != "" && string(before.Value) != shared.Name() {
			return &leftBehind{}, nil // of another store
		}
		if err := noteMoved(ctx, home, shared, before); err != nil {
			return nil, err
		}
		return readLeftBehind(ctx, home, shared, log)
	}
	records, err := home.AllRecords(ctx)
	if err != nil {
		return nil, err
	}
	// of an attempt before
	records = slices.DeleteFunc(records, func(r record.Record) bool { return r.Table == unmovedTable })
	unusable, err := home.Unusable(ctx)
	if err != nil {
		return nil, err
	}
	if err := noteUnmoved(ctx, home, unusable, time.Now()); err != nil { // before: this may end at any time
		return nil, err
	}
	moved, err := shared.Seed(ctx,
		consul.Contents{From: "ashored, from the store in the state folder of " + machineName(), Objects: objects,
			Records: records})
	if err != nil {
		return nil, err
	}
	if moved {
		log.Info("the store in Consul begins with what the one in the state folder had", "objects", len(objects),
			"records", len(records))
	} else if !shared.Empty() { // by another one meanwhile: nothing of this was to be moved
		if err := noteUnmoved(ctx, home, nil, time.Time{}); err != nil {
			return nil, err
		}
	}
	if err := noteMoved(ctx, home, shared, before); err != nil {
		return nil, err
	}
	return readLeftBehind(ctx, home, shared, log)
}

// movedKey is where the store in the state folder has the name of the first one in Consul that took
// its place.
func movedKey() record.Key { return record.Key{Table: "store", Name: "moved"} }

// noteMoved has the store in the state folder know that another one took its place, unless it did
// before.
func noteMoved(ctx context.Context, home meshStore, shared *consul.Store, before record.Record) error {
	if before.Version != "" {
		return nil
	}
	return home.Records().Commit(ctx, record.Write{Key: movedKey(), Value: []byte(shared.Name())})
}

// stayHome has the store in the state folder be the one in use, and know it.
func stayHome(ctx context.Context, home meshStore) error {
	before, err := home.Records().Get(ctx, movedKey())
	if err != nil || before.Version == "" {
		return err
	}
	if err := noteUnmoved(ctx, home, nil, time.Time{}); err != nil {
		return err
	}
	return home.Records().Commit(ctx, record.Write{Key: before.Key, Version: before.Version})
}
