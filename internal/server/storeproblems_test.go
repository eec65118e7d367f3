package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// ill is a store with what is wrong with it.
type ill struct{ away, refused, uncopied config.Outage }

func (ill) Name() string                 { return "store:consul:x" }
func (i ill) Standing() config.Outage    { return i.away }
func (i ill) Refused() config.Outage     { return i.refused }
func (i ill) CopyTrouble() config.Outage { return i.uncopied }

// The store in Consul says that its copy cannot be saved. That it is down, it says itself where it
// is an active source.
func TestSharedProblems(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	down, refused, full := config.Outage{Error: "no leader", Since: since}, config.Outage{Error: "403",
		Since: since}, config.Outage{Error: "no space", Since: since}
	for name, tc := range map[string]struct {
		store  ill
		active bool
		want   []string
	}{
		"up":                     {},
		"down":                   {ill{away: down, refused: refused}, false, []string{"error no leader; nothing can be written"}},
		"down, a source":         {ill{away: down}, true, nil},
		"not writable":           {ill{refused: refused}, false, []string{"error 403; nothing can be written"}},
		"not writable, a source": {ill{refused: refused}, true, []string{"error 403; nothing can be written"}},
		"no copy, a source":      {ill{uncopied: full}, true, []string{"warning the copy in the state folder cannot be saved, it is tried again: no space"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := sharedProblems(tc.store, func(source string) bool { return tc.active && source == tc.store.Name() })
			if len(got) != len(tc.want) {
				t.Fatalf("got %+v, want %d", got, len(tc.want))
			}
			for i, p := range got {
				if text := fmt.Sprintf("%s %s", p.Severity, p.Text); !strings.HasPrefix(text, tc.want[i]) ||
					!p.Since.Equal(since) || p.Source != tc.store.Name() {
					t.Errorf("got %s of %s since %v, want %q since %v", text, p.Source, p.Since, tc.want[i], since)
				}
			}
		})
	}
}
