package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// What other parts say of the store's trouble refers to it, and nothing else is lost.
func TestFoldInto(t *testing.T) {
	t.Parallel()
	const store, at, cause = "store:consul:x", "http://a:8500", "the Consul at http://a:8500 cannot be asked: refused"
	all := []feed.Problem{
		{Source: store, Field: "store", Text: cause + "; and what comes of it"},
		{Source: store, Text: cause},
		{Source: unshared, Field: unsharedField, Text: "not shared: another error"},
		{Source: unshared, Object: "shop/web", Text: "2 machines"},
		{Source: "ledger of workloads", Text: "it cannot be written: " + cause + "; mend it"},
		{Source: "consul:dc", Text: "Consul at http://a:8500 cannot be asked: EOF"},
		{Source: "consul:dc", Text: "Consul at http://a:8500 does not understand the filter"},
		{Source: "consul:other", Text: "Consul at http://b:8500 cannot be asked: EOF"},
		{Source: "export", Text: "the lease: Consul at http://a:8500 answers 500 (no leader)"},
	}
	folded := func(read bool) (out []string) {
		for _, p := range foldInto(slices.Clone(all), store, at, cause, read) {
			out = append(out, p.Source+" "+p.Text)
		}
		return out
	}
	want := []string{
		store + " " + cause + "; and what comes of it",
		unshared + " 2 machines",
		"ledger of workloads it cannot be written: the store is away: see " + store + "; mend it",
		"consul:dc its Consul is that of the setting store, and the store is away: see " + store,
		"consul:dc Consul at http://a:8500 does not understand the filter",
		"consul:other Consul at http://b:8500 cannot be asked: EOF",
		"export the lease: its Consul is that of the setting store, and the store is away: see " + store,
	}
	if d := cmp.Diff(want, folded(false)); d != "" {
		t.Errorf("the store is away (-want +got):\n%s", d)
	}
	want[2] = strings.Replace(want[2], "is away", "takes nothing", 1)
	want[3], want[6] = all[5].Source+" "+all[5].Text, all[8].Source+" "+all[8].Text
	if d := cmp.Diff(want, folded(true)); d != "" {
		t.Errorf("it takes nothing (-want +got):\n%s", d)
	}
}

// What the store says as a source of its content is told within the one entry of the store.
func TestFoldIntoContent(t *testing.T) {
	t.Parallel()
	const store, cause = "store:consul:x", "the Consul at http://a:8500 cannot be asked: refused"
	whole := storeTrouble{ill{away: config.Outage{Error: cause}}, "http://a:8500"}.problems()[0]
	unkept := feed.Problem{Source: store, Text: "what it says cannot be kept for a restart"}
	for content, want := range map[string]string{
		"": lastGoodStays,
		"; its content of 2026-11-22T05:00:00Z stands in":                                                            "its content of 2026-11-22T05:00:00Z stands in",
		"; its content of 2026-11-22T05:00:00Z is older than the setting maxAge (1h0m0s) allows, and counts as gone": "and counts as gone",
	} {
		got := foldInto([]feed.Problem{{Severity: feed.Warning, Source: store, Text: cause + content}, unkept, whole}, store, "http://a:8500", cause, false)
		if len(got) != 2 || got[0] != unkept || got[1].Severity != feed.Error || !strings.Contains(got[1].Text, want+", and "+unwritten) || strings.Count(got[1].Text, cause) != 1 ||
			strings.Contains(got[1].Text, lastGoodStays) != (content == "") {
			t.Errorf("with %q it tells %+v, want %q", content, got, want)
		}
	}
}

// ill is a store with what is wrong with it.
type ill struct{ away, refused, uncopied config.Outage }

func (ill) Name() string                 { return "store:consul:x" }
func (i ill) Standing() config.Outage    { return i.away }
func (i ill) Refused() config.Outage     { return i.refused }
func (i ill) CopyTrouble() config.Outage { return i.uncopied }

// What is wrong with the store is told while it lasts, with since when.
func TestStoreTroubleTold(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		store ill
		want  []string
	}{
		"well":          {},
		"away":          {ill{away: config.Outage{Error: "refused", Since: since}, refused: config.Outage{Error: "403", Since: since}}, []string{"error store refused; its last good"}},
		"takes nothing": {ill{refused: config.Outage{Error: "403", Since: since}}, []string{"error store 403; what it holds is known"}},
		"no copy": {ill{uncopied: config.Outage{Error: "no space", Since: since}},
			[]string{"warning state the copy in the state folder cannot be kept: no space; started while"}},
		"away without a copy": {ill{away: config.Outage{Error: "refused", Since: since}, uncopied: config.Outage{Error: "no space", Since: since}},
			[]string{"error store refused; its last good", "warning state the copy in the state folder cannot be kept: no space"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := storeTrouble{tc.store, "http://a:8500"}.problems()
			if len(got) != len(tc.want) {
				t.Fatalf("got %+v, want %d", got, len(tc.want))
			}
			for i, p := range got {
				if text := fmt.Sprintf("%s %s %s", p.Severity, p.Field, p.Text); !strings.HasPrefix(text, tc.want[i]) || !p.Since.Equal(since) || p.Source != "store:consul:x" {
					t.Errorf("got %s of %s since %v, want %q since %v", text, p.Source, p.Since, tc.want[i], since)
				}
			}
		})
	}
}

// An outage of the Consul that has the store, and is a source too, is one problem of the store and one of the source, which refers to it.
func TestOneOutage(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	s := sharing(t, agent)
	more := fmt.Appendf(nil, "store: {kind: consul, address: 'http://%[1]s'}\nsources: [{kind: store}, {name: dc, kind: consul, address: 'http://%[1]s'}]\n", agent.Address)
	if err := os.WriteFile(filepath.Join(s.dir, "ashored.yaml"), more, 0o600); err != nil {
		t.Fatal(err)
	}
	end := s.start(t)
	if err := s.apply(t, "web"); err != nil {
		t.Fatal(err)
	}
	var list []feed.Problem
	problems := func() []feed.Problem {
		var err error
		if list, err = admin.NewClient(s.socket).Problems(t.Context()); err != nil {
			t.Fatal(err)
		}
		return list
	}
	s.until(t, "all is well", func() bool { return s.uses(t, "web") && len(problems()) == 0 })
	agent.Kill()
	s.until(t, "all parts feel it", func() bool {
		return len(problems()) > 1 && strings.Contains(s.log.String(), "registrations are not shared") && strings.Count(s.log.String(), "of all services") > 0
	})
	wantOne := func() {
		t.Helper()
		if len(list) != 2 || list[0].Source == list[1].Source {
			t.Fatalf("one outage is told as %+v", list)
		}
		for _, p := range list {
			if about := strings.Contains(p.Text, "(setting store.address)"); about != strings.HasPrefix(p.Source, "store:") || !about && !strings.Contains(p.Text, "see store:consul:") {
				t.Errorf("%s: %s", p.Source, p.Text)
			}
		}
	}
	wantOne()
	if end() != 0 {
		t.Fatalf("the end; it said\n%s", s.log)
	}
	s.start(t)
	s.until(t, "what was known before stands in", func() bool {
		return s.uses(t, "web") && len(problems()) > 1 && slices.ContainsFunc(list, func(p feed.Problem) bool {
			return strings.HasPrefix(p.Source, "store:") && strings.Contains(p.Text, "stands in")
		})
	})
	wantOne()
}
