package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/testconsul"
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
		"not writable, a source": {ill{refused: refused}, true, nil},
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

// While the Consul is down that has the store, and is a source too, each source says so once, and
// what the store had stays active: also after a restart.
func TestConsulDown(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	s := sharing(t, agent)
	file := filepath.Join(s.dir, "ashored.yaml")
	more := fmt.Appendf(nil, "store: {kind: consul, address: 'http://%[1]s'}\nsources: [{kind: store}, {name: dc, kind: consul, address: 'http://%[1]s'}]\n", agent.Address)
	if err := os.WriteFile(file, more, 0o600); err != nil {
		t.Fatal(err)
	}
	end := s.start(t)
	if err := s.apply(t, "web"); err != nil {
		t.Fatal(err)
	}
	// down counts the problems that say that a source is down.
	down := func() map[string]int {
		list, err := admin.NewClient(s.socket).Problems(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]int{}
		for _, p := range list {
			if kind, _, _ := strings.Cut(p.Source, ":"); strings.HasSuffix(p.Text, "; its items stay active") {
				out[kind]++
			}
		}
		return out
	}
	s.until(t, "all is well", func() bool { return s.uses(t, "web") && len(down()) == 0 })
	agent.Kill()
	both := func() bool { return maps.Equal(down(), map[string]int{"store": 1, "consul": 1}) }
	s.until(t, "both say that they are down", both)
	if end() != 0 {
		t.Fatalf("the end; it logged\n%s", s.log)
	}
	s.start(t)
	s.until(t, "what was active before is used", func() bool { return s.uses(t, "web") && both() })
}
