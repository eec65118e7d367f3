package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
)

// unmovedTable is the table of the store in the state folder that has what was not moved from it
// into the one in Consul.
const unmovedTable = "unmoved"

// unmovedTime is for how long it is told that an object was not moved: one that nobody misses need
// not be written anew.
const unmovedTime = 30 * 24 * time.Hour

// unmoved is an object that was not moved, as the release of then could not read it.
type unmoved struct {
	Kind      config.Kind `json:"kind"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Why       string      `json:"why"`
	// At is when what could be read was moved.
	At time.Time `json:"at"`
}

func (u unmoved) key() config.Key {
	return config.Key{Kind: u.Kind, Namespace: u.Namespace, Name: u.Name}
}

// noteUnmoved has the store in the state folder keep which objects stay behind, in place of those
// of another time.
func noteUnmoved(ctx context.Context, home meshStore, list []storage.Unusable, at time.Time) error {
	before, err := home.Records().List(ctx, unmovedTable)
	if err != nil {
		return err
	}
	writes := map[record.Key]record.Write{}
	for _, r := range before {
		writes[r.Key] = record.Write{Key: r.Key, Version: record.Any}
	}
	for _, u := range list {
		value, err := json.Marshal(unmoved{u.Key.Kind, u.Key.Namespace, u.Key.Name, u.Why, at.UTC()})
		if err != nil {
			return fmt.Errorf("keep that %s was not moved: %w", u.Key, err)
		}
		k := record.Key{Table: unmovedTable, Name: u.Key.String()}
		writes[k] = record.Write{Key: k, Value: value, Version: record.Any}
	}
	var all []record.Write
	for _, w := range writes {
		all = append(all, w)
	}
	return home.Records().Commit(ctx, all...)
}

// leftBehind are the objects that were not moved from the store in the state folder into the shared
// one.
type leftBehind struct {
	list   []unmoved
	shared config.Store
}

// readLeftBehind reads what stayed behind, and logs it.
func readLeftBehind(ctx context.Context, home meshStore, shared config.Store, log hclog.Logger) (*leftBehind, error) {
	records, err := home.Records().List(ctx, unmovedTable)
	if err != nil {
		return nil, err
	}
	out := &leftBehind{shared: shared}
	for _, r := range records {
		var u unmoved
		if err := json.Unmarshal(r.Value, &u); err != nil {
			return nil, fmt.Errorf("read that %s was not moved: %w", r.Name, err)
		}
		out.list = append(out.list, u)
		if out.missing(ctx, u, time.Now()) {
			log.Error("an object of the store in the state folder was not moved into the one in Consul",
				"object", u.key().String(), "at", u.At, "error", u.Why)
		}
	}
	return out, nil
}

// missing says that an object is not in the shared store and was never written there, as far as it
// remembers: it says nothing of what cannot be looked up now.
func (l *leftBehind) missing(ctx context.Context, u unmoved, now time.Time) bool {
	if now.Sub(u.At) > unmovedTime {
		return false
	}
	if _, err := l.shared.Get(ctx, u.key()); !errors.Is(err, config.ErrNotFound) {
		return false
	}
	past, err := l.shared.History(ctx, config.Query{Key: u.key(), Limit: 1, Bare: true})
	return err == nil && len(past.Revisions) == 0
}

// lookTime is how long all that stayed behind may be looked for.
const lookTime = 2 * time.Second

// problems tells of each that is missing.
func (l *leftBehind) problems() (out []feed.Problem) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	for _, u := range l.list {
		if l.missing(ctx, u, time.Now()) {
			out = append(out, feed.Problem{Severity: feed.Error, Source: "store", Object: u.key().String(), Since: u.At,
				Text: "it was not moved from the store in the state folder into the one in Consul, and stays there: " + u.Why + "; write it anew (ashorectl apply), or leave it: this is told for 30 days"})
		}
	}
	return out
}
