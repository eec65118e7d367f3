package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
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
	s.argv = []string{"--dev", "--config", config, "--state", filepath.Join(s.dir, "state"), "--xds-address", s.xds,
		"--metrics-address", s.metrics}
	return s
}

// uses says whether a service entry of a name is in use.
func (s *site) uses(t *testing.T, name string) bool {
	objects, err := admin.NewClient(s.socket).Objects(t.Context(), "se", "shop", name)
	return err == nil && len(objects) == 1
}

func (s *site) apply(t *testing.T, names ...string) error {
	t.Helper()
	var files []admin.Piece
	for _, n := range names {
		files = append(files, serviceFile(n))
	}
	_, err := admin.NewClient(s.socket).Apply(t.Context(), piecesOf(files), admin.StoreOptions{})
	return err
}

// problem says whether one has a text in it.
func (s *site) problem(t *testing.T, text string) bool {
	problems, err := admin.NewClient(s.socket).Problems(t.Context())
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
	if stored, err := client.Stored(ctx, "se", "", ""); err != nil || len(stored) != 2 {
		t.Errorf("get --store: got %v, %v", stored, err)
	}
	if past, err := client.History(ctx, admin.HistoryRequest{Differences: true}); err != nil ||
		len(past.Revisions) != 1 || len(past.Revisions[0].Changes) != 2 || past.Latest != "1" {
		t.Errorf("history: got %+v, %v", past, err)
	}
	preview := admin.StoreOptions{Preview: true}
	applied, err := client.Apply(ctx, piecesOf([]admin.Piece{serviceFile("web"), serviceFile("new")}), preview)
	back, backErr := client.Rollback(ctx, admin.RollbackRequest{Revision: "0"}, preview)
	for what, got := range map[string]struct {
		admin.Written
		err   error
		first string
	}{"apply --dry-run": {applied, err, admin.Created}, "rollback 0 --dry-run": {back, backErr, admin.Deleted}} {
		old := slices.ContainsFunc(got.Warnings, func(p feed.Problem) bool {
			return strings.Contains(p.Text,
				"this goes by revision 1,")
		})
		if got.err != nil || len(got.Changes) != 2 || got.Changes[0].Action != got.first || !old {
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
	if stored, err := admin.NewClient(b.socket).Stored(t.Context(), "se", "", ""); err != nil || len(stored) != 2 {
		t.Errorf("the other stores %v, %v", stored, err)
	}
	for s, want := range map[*site]string{a: "ashore_store_entries_written_total [1-9]",
		b: "ashore_store_entries_written_total [0-9]"} {
		text := s.metricsText(t)
		for _, want := range []string{want, "ashore_store_in_touch 1", "ashore_store_sequence [1-9]",
			"ashore_store_races_total [0-9]", "ashore_store_unknown_writes_total 0"} {
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
	again.argv[len(again.argv)-5] = filepath.Join(b.dir, "state")
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

// An ashored that stood alone becomes the first of several: its objects and records are there for
// all. What another one brings later is not taken.
func TestMoveHome(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	key := record.Key{Table: "t", Name: "x"}
	bring := func(name string) *bolt.Store {
		home := openBolt(t).(*bolt.Store)
		b := onStore(func(testing.TB) meshStore { return home })(t)
		b.must(serviceFile(name))
		if err := home.Records().Commit(t.Context(), record.Write{Key: key, Value: []byte(name)}); err != nil {
			t.Fatal(err)
		}
		return home
	}
	first, second := bring("first"), bring("second")
	shared := openConsul(t, agent).(*consul.Store)
	for _, home := range []*bolt.Store{first, second} {
		if left, err := moveHome(t.Context(), home, shared, hclog.NewNullLogger()); err != nil || len(left.list) > 0 {
			t.Fatal(left, err)
		}
	}
	list, err := shared.List(t.Context(), "", "")
	if err != nil || len(list) != 1 || list[0].Name != "first" {
		t.Errorf("objects: %v, %v", list, err)
	}
	old, err := first.List(t.Context(), "", "")
	if err != nil || !old[0].Created.Equal(list[0].Created) {
		t.Errorf("created at %v, and was at %v", list[0].Created, old[0].Created)
	}
	if r, err := shared.Records().Get(t.Context(), key); err != nil || string(r.Value) != "first" {
		t.Errorf("record: %q, %v", r.Value, err)
	}
	// what is at home is of the past by now: it begins no other store, until it was in use again
	wantBegun := func(want int) {
		t.Helper()
		anew := openConsul(t, agent).(*consul.Store)
		if _, err := moveHome(t.Context(), first, anew, hclog.NewNullLogger()); err != nil {
			t.Fatal(err)
		}
		if list, err := anew.List(t.Context(), "", ""); err != nil || len(list) != want {
			t.Errorf("another store begins with %v, %v, want %d", list, err, want)
		}
	}
	wantBegun(0)
	if err := stayHome(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	wantBegun(1)
}

// damagedHome is a store in the state folder with an object that cannot be read.
type damagedHome struct{ *bolt.Store }

var odd = config.Key{Kind: "Teapot", Namespace: "shop", Name: "earl"}

func (damagedHome) Unusable(context.Context) ([]storage.Unusable, error) {
	return []storage.Unusable{{Key: odd, Why: "the kind is unknown"}}, nil
}

// What cannot be moved is told by name, in the log and among the problems; so it is where the store
// is listed.
func TestMoveHomeLeftBehind(t *testing.T) {
	t.Parallel()
	home := damagedHome{openBolt(t).(*bolt.Store)}
	b := onStore(func(testing.TB) meshStore { return home })(t)
	b.must(serviceFile("fine"))
	var log bytes.Buffer
	shared := openConsul(t, testconsul.Start(t, nil)).(*consul.Store)
	told := func(from homeStore) []feed.Problem {
		t.Helper()
		left, err := moveHome(t.Context(), from, shared, hclog.New(&hclog.LoggerOptions{Output: &log}))
		if err != nil {
			t.Fatal(err)
		}
		return left.problems()
	}
	// the last one is as of a release that can read it, and lacks it all the same
	for start, from := range []homeStore{home, home, home.Store} {
		left := told(from)
		if len(left) != 1 || left[0].Object != odd.String() || left[0].Severity != feed.Error ||
			!strings.Contains(left[0].Text, "the kind is unknown") {
			t.Errorf("at start %d: got %+v", start, left)
		}
	}
	if !strings.Contains(log.String(), odd.String()) {
		t.Errorf("the log says %s", &log)
	}
	for _, q := range [][3]string{{"", "", ""}, {"", "shop", ""}, {"", "shop", "earl"}} {
		list, err := b.Stored(t.Context(), q[0], q[1], q[2])
		if err != nil || len(list) == 0 || list[len(list)-1].Metadata.Name != "earl" ||
			list[len(list)-1].Unusable != "the kind is unknown" {
			t.Errorf("%q: got %+v, %v", q, list, err)
		}
	}
	if list, err := b.Stored(t.Context(), "serviceentry", "", ""); err != nil || len(list) != 1 ||
		list[0].Unusable != "" {
		t.Errorf("of another kind: got %+v, %v", list, err)
	}
}

// What others than ashored may get hold of is told.
func TestExposed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	for _, tc := range []struct {
		address string
		mode    os.FileMode
		want    string
	}{
		{"http://127.0.0.1:8500", 0o640, "[]"}, {"https://consul.example", 0o600, "[]"},
		{"http://consul.example", 0o600, "[store.address]"}, {"unix:///run/consul.sock", 0o604, "[store.tokenFile]"},
	} {
		if err := errors.Join(os.WriteFile(file, []byte("x"), tc.mode), os.Chmod(file, tc.mode)); err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, p := range exposed(consul.Options{Address: tc.address, TokenFile: file}) {
			got = append(got, p.Field)
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%s, %04o: got %v, want %s", tc.address, tc.mode, got, tc.want)
		}
	}
	if got := exposed(consul.Options{Address: "http://127.0.0.1:8500"}); len(got) != 0 {
		t.Errorf("without a token: %v", got)
	}
}

// So it is of sources.
func TestSourceExposed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := errors.Join(os.WriteFile(file, []byte("x"), 0o644), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	source := func(i int, address, token string) sourceSettings {
		o := &consulSource{}
		o.Address, o.TokenFile = address, token
		return sourceSettings{Name: "dc", Kind: "consul", at: fmt.Sprintf("sources[%d]", i), options: o}
	}
	m := &sourceMaker{settings: map[string]sourceSettings{
		"consul:a": source(0, "", ""), "consul:b": source(1, "http://10.0.0.1:8500", file), "consul:c": source(2, "https://10.0.0.1:8501", file),
		"consul:d": source(3, "http://10.0.0.1:8500", ""), "file:/x": {options: &filesSource{}},
	}}
	var got []string
	for _, p := range m.exposed() {
		if p.Severity != feed.Warning || strings.Contains(p.Text,
			"reads the token") != (p.Field == "sources[1].address") {
			t.Errorf("problem %+v", p)
		}
		got = append(got, p.Source+" "+p.Field)
	}
	if want := "[consul:b sources[1].address consul:b sources[1].tokenFile consul:c sources[2].tokenFile consul:d sources[3].address]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// What stands in the line to join is typed into a shell on another machine: what others wrote into
// the store is in it only if it is an address.
func TestPlanes(t *testing.T) {
	t.Parallel()
	o := operators{identity: &identity{reach: reach{addresses: []string{"one.example:15012"}}, others: func() []string {
		return []string{"one.example:15012", "10.0.0.2:15012", "[2001:db8::1]:15012", "x; reboot #:15012",
			"$(reboot):15012", "two.example:`reboot`", "two.example:99999", "a,b:1", ""}
	}}}
	if got, want := strings.Join(o.planes(), ","), "one.example:15012,10.0.0.2:15012,[2001:db8::1]:15012"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
