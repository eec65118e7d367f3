package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/push"
)

// heldName is where it is kept what stays in use although no source has it any more. No source is called so.
const heldName = "held"

// heldKeeper keeps over a restart what stays in use although no source has it any more: each object under its name.
type heldKeeper struct {
	writer *lastgood.Writer
	last   map[string]push.Held // what was put last, by name; of the goroutine that calls keep
	log    hclog.Logger
}

// heldRecord is one object as it is kept.
type heldRecord struct {
	Beside feed.GroupID  `json:"beside"`
	Left   bool          `json:"left,omitempty"`
	Origin config.Origin `json:"origin"`
	Text   string        `json:"text"` // as config.Encode writes it
}

// newHeldKeeper makes a keeper, and returns what was held before the start. What of that cannot be read is told to the log.
func newHeldKeeper(ctx context.Context, store lastgood.Store, log hclog.Logger) (*heldKeeper, []push.Held, error) {
	contents, err := store.LoadLastGood(ctx, heldName)
	if err != nil {
		return nil, nil, fmt.Errorf("what stays in use although no source has it any more: %w", err)
	}
	h := &heldKeeper{writer: lastgood.NewWriter(store, heldName, lastgood.Pace{}, log), last: map[string]push.Held{}, log: log}
	var held []push.Held
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		one, err := decodeHeld(contents[name])
		h.last[name] = one
		if err != nil {
			log.Error("an object that was to stay in use, although no source has it any more, cannot be used", "object", name, "error", err)
			continue
		}
		held = append(held, one)
	}
	return h, held, nil
}

// keep notes what is held now. It does not wait.
func (h *heldKeeper) keep(all []push.Held) {
	contents, now := map[string]lastgood.Content{}, make(map[string]push.Held, len(all))
	for _, one := range all {
		name := one.Object.Key.String()
		if now[name] = one; h.last[name] != one {
			contents[name] = func() ([]byte, error) { return encodeHeld(one) }
		}
	}
	for name := range h.last {
		if _, held := now[name]; !held {
			contents[name] = nil
		}
	}
	h.last = now
	h.writer.Put(contents)
}

// run writes until ctx ends, and then what is left.
func (h *heldKeeper) run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.writer.Run(ctx)
	}()
	failing := false
	for {
		select {
		case err := <-h.writer.Status():
			if err != nil && !failing {
				h.log.Error("what stays in use, although no source has it any more, cannot be kept for the next start: it is tried again every second", "error", err)
			}
			failing = err != nil
		case <-ctx.Done():
			h.writer.End()
			<-ended
			return nil
		}
	}
}

func encodeHeld(one push.Held) ([]byte, error) {
	text, err := config.Encode([]*config.Object{one.Object})
	if err != nil {
		return nil, err
	}
	return json.Marshal(heldRecord{Beside: one.Beside, Left: one.Left, Origin: one.Object.Origin, Text: string(text)})
}

func decodeHeld(b []byte) (push.Held, error) {
	var r heldRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return push.Held{}, err
	}
	result := config.ParseKept("kept.yaml", []byte(r.Text))
	if len(result.Objects) != 1 {
		return push.Held{}, fmt.Errorf("it is not valid for this release: %v", result.Problems)
	}
	o := result.Objects[0]
	o.Origin = r.Origin
	return push.Held{Object: o, Beside: r.Beside, Left: r.Left}, nil
}
