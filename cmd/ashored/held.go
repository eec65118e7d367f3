package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/push"
)

// heldName is where it is kept what stays in use although no source has it any more. No source is called so.
const heldName = "held"

// goneToo ends the name under which it is kept that an object went, where one of its name is held besides.
const goneToo = " gone"

// heldKeeper keeps over a restart what stays in use although no source has it any more, and what was let go lately: each object under
// its name.
type heldKeeper struct {
	writer *lastgood.Writer
	last   map[string]push.Held // what was put last, by name; of the goroutine that calls keep
	log    hclog.Logger

	mu   sync.Mutex
	lost map[string]error // guarded by mu: what this release cannot read of what was held before the start, by name
}

// heldRecord is one object as it is kept.
type heldRecord struct {
	Beside feed.GroupID `json:"beside"`
	Left   bool         `json:"left,omitempty"`
	Untold bool         `json:"untold,omitempty"`
	Gone   time.Time    `json:"gone,omitzero"`
	// Unedited is Held's.
	Unedited bool          `json:"unedited,omitempty"`
	Origin   config.Origin `json:"origin"`
	Text     string        `json:"text"` // as config.Encode writes it
}

// newHeldKeeper makes a keeper, and returns what was held before the start. What of that cannot be read is a problem, and kept on.
func newHeldKeeper(ctx context.Context, store lastgood.Store, log hclog.Logger) (*heldKeeper, []push.Held, error) {
	contents, err := store.LoadLastGood(ctx, heldName)
	if err != nil {
		return nil, nil, fmt.Errorf("what stays in use although no source has it any more: %w", err)
	}
	h := &heldKeeper{writer: lastgood.NewWriter(store, heldName, lastgood.Pace{}, log), last: map[string]push.Held{}, log: log, lost: map[string]error{}}
	var held []push.Held
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		one, err := decodeHeld(contents[name])
		if err != nil && (strings.HasSuffix(name, goneToo) || !one.Gone.IsZero()) {
			log.Warn("an object that was taken away shortly before the start cannot be read: nothing wrong elsewhere keeps it in use", "object", name, "error", err)
			h.writer.Put(map[string]lastgood.Content{name: nil})
			continue
		}
		if err != nil {
			h.lost[name] = err
			log.Error("an object that was to stay in use, although no source has it any more, cannot be used", "object", name, "error", err)
			continue
		}
		h.last[name] = one
		held = append(held, one)
	}
	return h, held, nil
}

// problems are what of it cannot be read. It is told, and kept on for another release, until there is an object of that name.
func (h *heldKeeper) problems(inUse func(config.Key) bool) (out []feed.Problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.lost)) {
		if inUse(config.ParseKey(name)) {
			delete(h.lost, name)
			h.writer.Put(map[string]lastgood.Content{name: nil})
			continue
		}
		out = append(out, feed.Problem{Severity: feed.Error, Source: heldName, Object: name, Text: fmt.Sprintf(
			"it was to stay in use, although no source has it any more, and this release cannot read what was kept of it (%v): it is not in use. "+
				"Define it anew; if it is not wanted, define it once and take it out again. Until then it is kept on for another release of ashored", h.lost[name])})
	}
	return out
}

// keep notes what is held now. It does not wait.
func (h *heldKeeper) keep(all []push.Held) {
	contents, now := map[string]lastgood.Content{}, make(map[string]push.Held, len(all))
	for _, one := range all {
		name := one.Object.Key.String()
		if _, also := now[name]; also { // it is in use here, and what others were told of it went
			name += goneToo
		}
		if now[name] = one; h.last[name] != one {
			h.found(name)
			contents[name] = func() ([]byte, error) { return encodeHeld(one) }
		}
	}
	var lapsed []string
	for name, was := range h.last {
		if _, held := now[name]; held {
			continue
		}
		if taken := contents[strings.TrimSuffix(name, goneToo)] != nil; was.Gone.IsZero() || taken {
			contents[name] = nil
		} else {
			lapsed = append(lapsed, name) // else, on a full disk, it would count at the next start as what went just before that
		}
	}
	h.last = now
	h.writer.Put(contents, lapsed...)
}

// found notes that something is held, and kept, in the place of what could not be read.
func (h *heldKeeper) found(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.lost, name)
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
	return json.Marshal(heldRecord{Beside: one.Beside, Left: one.Left, Untold: one.Untold, Gone: one.Gone, Unedited: one.Unedited, Origin: one.Object.Origin, Text: string(text)})
}

// decodeHeld reads a record. With an error it says whether the object is gone, as far as that can be read.
func decodeHeld(b []byte) (push.Held, error) {
	var r heldRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return push.Held{}, err
	}
	result := config.ParseKept("kept.yaml", []byte(r.Text))
	if len(result.Objects) != 1 {
		return push.Held{Gone: r.Gone}, fmt.Errorf("it is not valid for this release: %v", result.Problems)
	}
	o := result.Objects[0]
	o.Origin = r.Origin
	return push.Held{Object: o, Beside: r.Beside, Left: r.Left, Untold: r.Untold, Gone: r.Gone, Unedited: r.Unedited}, nil
}
