package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// The first replica copies the store in its state folder to an empty store in Consul. The second
// one does not. Later an empty store is an error, until store.kind was bolt again.
func TestSeedShared(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	key := record.Key{Table: "t", Name: "x"}
	home := func(name string) *bolt.Store {
		s := openHome(t)
		if err := s.Records().Commit(t.Context(), record.Write{Key: key, Value: []byte(name)}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	open := func(prefix string) *consul.Store {
		s, err := consul.Open(t.Context(), consul.Config{Replica: "a", Kept: openHome(t), Log: testlog.New(t),
			Options: consul.Options{Address: "http://" + agent.Address, Prefix: prefix}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	first, second, shared := home("first"), home("second"), open("one")
	for _, s := range []*bolt.Store{first, second, first} {
		if err := seedShared(t.Context(), s, shared, testlog.New(t)); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := shared.Records().Get(t.Context(), key); err != nil || string(r.Value) != "first" {
		t.Errorf("record %q, %v; want that of the first", r.Value, err)
	}
	err := seedShared(t.Context(), first, open("two"), testlog.New(t))
	if err == nil || !strings.Contains(err.Error(), "store.prefix") {
		t.Errorf("an empty store: got %v, want an error that names store.prefix", err)
	}
	if err := forgetShared(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := seedShared(t.Context(), first, open("three"), testlog.New(t)); err != nil {
		t.Errorf("after store.kind was bolt again: %v", err)
	}
}

// openHome opens a store in a new state folder.
func openHome(t *testing.T) *bolt.Store {
	t.Helper()
	s, err := bolt.New(bolt.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A store that others can read or change is a problem.
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
		for _, p := range storeExposed(consul.Options{Address: tc.address, TokenFile: file}) {
			got = append(got, p.Field)
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%s, %04o: got %v, want %s", tc.address, tc.mode, got, tc.want)
		}
	}
	if got := storeExposed(consul.Options{Address: "http://127.0.0.1:8500"}); len(got) != 0 {
		t.Errorf("without a token: %v", got)
	}
}

// A source that others can read or change is a problem.
func TestSourceExposed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := errors.Join(os.WriteFile(file, []byte("x"), 0o644), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	source := func(i int, address, token string) settings.Source {
		o := &settings.ConsulSource{}
		o.Address, o.TokenFile = address, token
		return settings.Source{Name: "dc", Kind: "consul", At: fmt.Sprintf("sources[%d]", i), Options: o}
	}
	m := &sourceMaker{settings: map[string]settings.Source{
		"consul:a": source(0, "", ""), "consul:b": source(1, "http://10.0.0.1:8500", file), "consul:c": source(2, "https://10.0.0.1:8501", file),
		"consul:d": source(3, "http://10.0.0.1:8500", ""), "file:/x": {Options: &settings.FilesSource{}},
	}}
	var got []string
	for _, p := range m.exposed() {
		if p.Severity != feed.Warning {
			t.Errorf("problem %+v", p)
		}
		got = append(got, p.Source+" "+p.Field)
	}
	if want := "[consul:b sources[1].address consul:b sources[1].tokenFile consul:c sources[2].tokenFile consul:d sources[3].address]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
