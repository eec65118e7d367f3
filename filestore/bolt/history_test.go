package bolt

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
)

// The oldest revisions are deleted whole when the history is too large or too old, never the
// latest.
func TestTrimHistory(t *testing.T) {
	t.Parallel()
	const kB = 1 << 10
	type step struct {
		wait  time.Duration
		names string // written in one Apply, about 1 kB each
		since string // the oldest revision that is known
	}
	for name, tt := range map[string]struct {
		cfg   Config
		steps []step
	}{
		"bytes": {Config{HistoryBytes: 5 * kB}, []step{
			{names: "a b c", since: "0"}, // new: the history has no content
			{names: "a", since: "0"}, {names: "b", since: "0"}, {names: "c", since: "0"},
			{names: "a b", since: "2"}, // the first revision has no content, the second was too much
			{names: "a b c d e f g", since: "5"}, {names: "a", since: "6"}, {names: "b", since: "6"},
			{names: "a b c d e f g", since: "8"}, // larger than the bound
		}},
		"age": {Config{HistoryAge: time.Hour}, []step{
			{names: "a b", since: "0"}, {wait: 50 * time.Minute, names: "a", since: "0"},
			{wait: 50 * time.Minute, names: "a", since: "1"}, {wait: 10 * time.Hour, names: "a", since: "3"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.cfg.Dir = t.TempDir()
				s := open(t, tt.cfg)
				for i, step := range tt.steps {
					time.Sleep(step.wait)
					var changes []config.Change
					for _, name := range strings.Fields(step.names) {
						o := configtest.Object(name, "a.test")
						o.Annotations["x"] = strings.Repeat("x", 950)
						changes = append(changes, config.Change{Key: o.Key, Object: o})
					}
					if _, err := s.Apply(t.Context(), changes, "test"); err != nil {
						t.Fatal(err)
					}
					s = reopen(t, s)
					past, err := s.History(t.Context(), config.Query{})
					if err != nil || past.Since != step.since {
						t.Errorf("after revision %d: since %s, %v; want %s", i+1, past.Since, err, step.since)
					}
					var got []string
					for _, w := range past.Revisions[0].Writes {
						got = append(got, w.Key.Name)
					}
					if d := cmp.Diff(strings.Fields(step.names), got); d != "" {
						t.Errorf("revision %d (-want +got):\n%s", i+1, d)
					}
				}
			})
		})
	}
}
