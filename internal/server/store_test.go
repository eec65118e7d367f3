package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/push"
)

// init copies the store in the state folder to an empty store in Consul, and not to another one.
func TestSeed(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	key := record.Key{Table: "t", Name: "x"}
	open := func(name, prefix string, create bool) (*Server, bool, error) {
		cfg := settings.Default()
		cfg.MeshConfig = &push.Mesh{Config: &mesh.MeshConfig{TrustDomain: "cluster.local"}}
		cfg.Store.Kind, cfg.Store.Address, cfg.Store.Prefix = settings.StoreConsul, "http://"+agent.Address, prefix
		s := newServer(cfg, testlog.New(t))
		s.home = openHome(t)
		if err := s.home.Records().Commit(t.Context(), record.Write{Key: key, Value: []byte(name)}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.close(); err != nil {
				t.Error(err)
			}
		})
		created, err := s.openStore(t.Context(), create)
		return s, created, err
	}
	if _, _, err := open("nobody", "one", false); err == nil || !strings.Contains(err.Error(), "ashored init") {
		t.Errorf("an empty store: got %v, want an error that names ashored init", err)
	}
	for _, name := range []string{"first", "second"} {
		s, created, err := open(name, "one", true)
		if err != nil || created != (name == "first") {
			t.Fatalf("%s: created is %v, %v", name, created, err)
		}
		if r, err := s.store.Records().Get(t.Context(), key); err != nil || string(r.Value) != "first" {
			t.Errorf("record %q, %v; want that of the first", r.Value, err)
		}
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
		for _, p := range exposure("store", "store", tc.address, file) {
			got = append(got, p.Field)
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%s, %04o: got %v, want %s", tc.address, tc.mode, got, tc.want)
		}
	}
	if got := exposure("store", "store", "http://127.0.0.1:8500", ""); len(got) != 0 {
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
	source := func(name string, i int, address, token string) settings.Source {
		o := &settings.ConsulSource{}
		o.Address, o.TokenFile = address, token
		return settings.Source{Name: name, Kind: "consul", At: fmt.Sprintf("sources[%d]", i), Options: o}
	}
	s := newServer(settings.Config{SourceList: []settings.Source{
		source("a", 0, "", ""), source("b", 1, "http://10.0.0.1:8500", file), source("c", 2, "https://10.0.0.1:8501", file),
		source("d", 3, "http://10.0.0.1:8500", ""),
	}}, testlog.New(t))
	if _, err := s.makeSources(nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, problems := range s.problems {
		for _, p := range problems() {
			if p.Severity != feed.Warning {
				t.Errorf("problem %+v", p)
			}
			got = append(got, p.Source+" "+p.Field)
		}
	}
	if want := "[consul:b sources[1].address consul:b sources[1].tokenFile consul:c sources[2].tokenFile consul:d sources[3].address]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
