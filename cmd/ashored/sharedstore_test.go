package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// sharing is a site with the store in a Consul, and no files.
func sharing(t *testing.T, agent *testconsul.Agent) *site {
	t.Helper()
	s := newSite(t)
	config := filepath.Join(s.dir, "ashored.yaml")
	if err := os.WriteFile(config,
		fmt.Appendf(nil, "store: {kind: consul, address: 'http://%s'}\nsources: [{kind: store}]\n",
			agent.Address), 0o600); err != nil {
		t.Fatal(err)
	}
	s.argv = append([]string{"--dev", "--config", config}, s.set()...)
	return s
}

// uses says whether a service entry of a name is in use.
func (s *site) uses(t *testing.T, name string) bool {
	objects, err := admin.Send(t.Context(), admin.NewClient(s.socket), admin.CallObjects, admin.ObjectQuery{Kind: "se", Namespace: "shop", Name: name})
	return err == nil && len(objects) == 1
}

func (s *site) apply(t *testing.T, names ...string) error {
	t.Helper()
	var files []admin.Piece
	for _, n := range names {
		files = append(files, serviceFile(n))
	}
	_, err := admin.Send(t.Context(), admin.NewClient(s.socket), admin.CallWrite,
		admin.StoreWrite{Action: admin.Apply, Pieces: files})
	return err
}

// problem says whether one has a text in it.
func (s *site) problem(t *testing.T, text string) bool {
	problems, err := admin.Send(t.Context(), admin.NewClient(s.socket), admin.CallProblems, admin.None{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.Contains(p.String(), text) {
			return true
		}
	}
	return false
}

// wantKnown wants that a store which cannot be read tells operators of what it knew, web and api of
// revision 1, and previews by that.
func (s *site) wantKnown(t *testing.T) {
	t.Helper()
	client, ctx := admin.NewClient(s.socket), t.Context()
	if stored, err := admin.Send(ctx, client, admin.CallStored, admin.ObjectQuery{Kind: "se"}); err != nil || len(stored) != 2 {
		t.Errorf("get --store: got %v, %v", stored, err)
	}
	if past, err := admin.Send(ctx, client, admin.CallHistory, admin.HistoryRequest{Differences: true}); err != nil ||
		len(past.Revisions) != 1 || len(past.Revisions[0].Changes) != 2 || past.Latest != "1" {
		t.Errorf("history: got %+v, %v", past, err)
	}
	applied, err := admin.Send(ctx, client, admin.CallPreview, admin.StoreWrite{Action: admin.Apply,
		Pieces: []admin.Piece{serviceFile("web"), serviceFile("new")}})
	back, backErr := admin.Send(ctx, client, admin.CallPreview, admin.StoreWrite{Action: admin.Rollback, Revision: "0"})
	for what, got := range map[string]struct {
		admin.Written
		err   error
		first string
	}{"apply --dry-run": {applied, err, admin.Created}, "rollback 0 --dry-run": {back, backErr, admin.Deleted}} {
		if got.err != nil || len(got.Changes) != 2 || got.Changes[0].Action != got.first || got.Revision != "1" {
			t.Errorf("%s: got %+v, %v", what, got.Written, got.err)
		}
	}
}

// What is written on one ashored is in use on the other. While Consul is away both go on, one that
// is started then too; nothing is written, and everybody says why. When it is back everything goes
// on.
func TestSharedStore(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	a, b := sharing(t, agent), sharing(t, agent)
	a.start(t)
	end := b.start(t)
	if err := a.apply(t, "web", "api"); err != nil {
		t.Fatal(err)
	}
	b.until(t, "told by the other", func() bool { return b.uses(t, "web") && b.uses(t, "api") })
	if stored, err := admin.Send(t.Context(), admin.NewClient(b.socket), admin.CallStored, admin.ObjectQuery{Kind: "se"}); err != nil || len(stored) != 2 {
		t.Errorf("the other stores %v, %v", stored, err)
	}
	for _, s := range []*site{a, b} {
		text := s.metricsText(t)
		for _, want := range []string{"ashore_store_in_touch 1", `ashore_store_sequence\{log="config"\} [1-9]`} {
			if !regexp.MustCompile("(?m)^" + want).MatchString(text) {
				t.Errorf("no metric %s", want)
			}
		}
	}
	if end() != 0 {
		t.Errorf("the end of the other; it said\n%s", b.log)
	}
	agent.Kill()
	again := sharing(t, agent)
	again.argv = append(again.argv, "--set", "state="+filepath.Join(b.dir, "state"))
	again.socket = b.socket
	again.start(t)
	for _, s := range []*site{a, again} {
		if !s.uses(t, "web") || !s.uses(t, "api") {
			t.Error("what was in use is not any more")
		}
		if err := s.apply(t, "db"); err == nil || !strings.Contains(err.Error(), "store.address") {
			t.Errorf("apply: got %v, want why not", err)
		}
		s.until(t, "a problem that tells it", func() bool { return s.problem(t, "store.address") })
		s.wantKnown(t)
	}
	agent.Start()
	for _, s := range []*site{a, again} {
		s.until(t, "in touch again", func() bool { return !s.problem(t, "store.address") })
	}
	if err := again.apply(t, "db"); err != nil {
		t.Error(err)
	}
	a.until(t, "told by the other", func() bool { return a.uses(t, "db") })
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
		list, err := admin.Send(t.Context(), admin.NewClient(s.socket), admin.CallProblems, admin.None{})
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

// Deleting an object of the store removes it, and names the file that has an invalid version of it.
func TestDeleteWhatAFileHasWrong(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(t)
	if err := s.apply(t, "db"); err != nil {
		t.Fatal(err)
	}
	s.until(t, "it is in use", func() bool { return s.uses(t, "db") })
	s.put(t, "db.yaml", strings.Replace(string(serviceFile("db").Data), "number: 80", "number: 80000", 1))
	s.until(t, "the error is reported", func() bool { return s.problem(t, "db.yaml:") })
	done, err := admin.Send(t.Context(), admin.NewClient(s.socket), admin.CallWrite, admin.StoreWrite{
		Action: admin.Delete, Pieces: []admin.Piece{{Ref: &admin.Ref{Kind: "se", Namespace: "shop", Name: "db"}}}})
	if err != nil || len(done.Changes) != 1 {
		t.Errorf("got %+v, %v", done, err)
	}
	s.until(t, "it is removed", func() bool { return !s.uses(t, "db") })
}

// A folder that lost all its files keeps them until an operator accepts the removals.
func TestAcceptRemovalsOfFolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(t)
	client := admin.NewClient(s.socket)
	if err := os.Remove(filepath.Join(s.dir, "files", "web.yaml")); err != nil {
		t.Fatal(err)
	}
	s.until(t, "the service is retained", func() bool { return s.problem(t, "removed from web.yaml") })
	if !s.uses(t, "web") {
		t.Error("the service is not active any more")
	}
	got, err := admin.Send(t.Context(), client, admin.CallAcceptRemovals, admin.AcceptRequest{Source: "files"})
	if err != nil || got.Removed != 1 {
		t.Errorf("got %+v, %v; want one item removed", got, err)
	}
	s.until(t, "the service is removed", func() bool {
		return !s.uses(t, "web") &&
			!s.problem(t, "removed from web.yaml")
	})
}
