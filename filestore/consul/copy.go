package consul

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/writebehind"
)

// Each replica saves a copy of the state of each log, for a start while Consul is down.

// copyAbout is the name of an aboutCopy. The names of records begin with a digit.
const copyAbout = "about"

// aboutCopy says which state a copy has.
type aboutCopy struct {
	Head head `json:"head"`
	// AsOf is when it was known to be up to date, to the minute.
	AsOf time.Time `json:"asOf"`
}

// copySet is the name of the copy of a log. Stores at different places have different copies.
func copySet(o Options, log string) string { return "consul:" + o.place() + "/" + log }

// copyName is the name of a record in a copy.
func copyName(k record.Key) string { return strconv.Itoa(len(k.Table)) + ":" + k.Table + k.Name }

func newCopy(cfg *Config, log string) *writebehind.Writer {
	save := func(ctx context.Context, content map[string][]byte) error {
		return cfg.Kept.SaveGroups(ctx, copySet(cfg.Options, log), content)
	}
	return writebehind.New(writebehind.Config{Save: save, What: "copy of the store in Consul: " + log, Log: cfg.Log})
}

// saveCopy saves the difference between two states.
func (l *replicatedLog) saveCopy(old, next *state) {
	contents := map[string]writebehind.Encode{copyAbout: aboutNow(next)}
	for c := range next.records.Diff(old.records) {
		key, v := c.Key, c.New
		contents[copyName(key)] = nil
		if c.HasNew {
			contents[copyName(key)] = func() ([]byte, error) {
				return json.Marshal(item{key.Table, key.Name, v.version, v.content})
			}
		}
	}
	l.copy.Put(contents)
}

// touchCopy saves that the copy is up to date.
func (l *replicatedLog) touchCopy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.copy.Put(map[string]writebehind.Encode{copyAbout: aboutNow(l.state.Load())})
}

func aboutNow(s *state) writebehind.Encode {
	about := aboutCopy{Head: s.head, AsOf: time.Now().UTC()}
	return func() ([]byte, error) { return json.Marshal(about) }
}

// loadCopy makes the copy the state, and returns when it was up to date; zero: there is no copy.
func (l *replicatedLog) loadCopy(ctx context.Context) (asOf time.Time, err error) {
	contents, err := l.cfg.Kept.LoadGroups(ctx, copySet(l.cfg.Options, l.name))
	if err != nil || contents[copyAbout] == nil {
		return asOf, err
	}
	var about aboutCopy
	if err := json.Unmarshal(contents[copyAbout], &about); err != nil {
		return asOf, fmt.Errorf("read %q: %w", copyAbout, err)
	}
	var items []item
	for name, content := range contents {
		if name == copyAbout {
			continue
		}
		var i item
		if err := json.Unmarshal(content, &i); err != nil {
			return asOf, fmt.Errorf("read %q: %w", name, err)
		}
		items = append(items, i)
	}
	s := (&state{head: about.Head}).with(items, "", l.decode)
	l.state.Store(s)
	return about.AsOf, nil
}

// CopyTrouble is why this replica's copy cannot be saved. A start while Consul is down would use an
// older one.
func (s *Store) CopyTrouble() config.Outage {
	for _, l := range s.logs() {
		if since, err := l.copy.Err(); err != nil {
			return config.Outage{Error: err.Error(), Since: since}
		}
	}
	return config.Outage{}
}
