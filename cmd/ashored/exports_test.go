package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// That something cannot be removed from a Consul to which nothing is exported any more is told for
// as long as that is so.
func TestExportsLeaving(t *testing.T) {
	t.Parallel()
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "No cluster leader", http.StatusInternalServerError)
	}))
	defer away.Close()
	x := newExports(&push.Mesh{}, testlog.New(t))
	options := &consulSource{Options: consul.Options{Address: away.URL, Export: consul.ExportOptions{Owner: "shop"}}}
	if err := x.arrange([]sourceSettings{{Name: "dc1", Kind: "consul", options: options}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- x.run(ctx) }()
	for len(x.again) > 0 { // until it runs
		time.Sleep(time.Millisecond)
	}
	if err := x.arrange(nil); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if p := x.problems(); len(p) == 1 && strings.Contains(p[0].Text, "is not removed yet: Consul at "+away.URL) &&
			p[0].Source == "consul:dc1" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("problems are %v", x.problems())
		}
	}
	cancel()
	if err := <-done; err != nil || len(x.problems()) > 0 {
		t.Errorf("%v, %v", err, x.problems())
	}
}

// A list that is not taken in the end is no list: nobody is told of its sources, and those of
// before are the same ones.
func TestListNotTaken(t *testing.T) {
	t.Parallel()
	m := &sourceMaker{log: testlog.New(t), made: map[string]madeSource{}}
	list := func(names ...string) (out []sourceSettings) {
		for _, n := range names {
			out = append(out, sourceSettings{Name: n, Kind: "mcp",
				options: &mcpSource{Address: "127.0.0.1:1", Plaintext: true}})
		}
		return out
	}
	first, take, err := m.make(list("one"))
	if err != nil {
		t.Fatal(err)
	}
	take()
	r := &reloader{maker: m, export: func([]sourceSettings) error { return errors.New("no") },
		arrange: func(context.Context, push.Sources) error { return nil }}
	if err := r.arrangeAnew(t.Context(), list("two")); err == nil {
		t.Fatal("an export that fails is no error")
	}
	if m.setting("mcp:one") != "one" || m.setting("mcp:two") != "mcp:two" {
		t.Errorf("names are %q and %q", m.setting("mcp:one"), m.setting("mcp:two"))
	}
	again, _, err := m.make(list("one"))
	if err != nil || again.Objects[0].Source != first.Objects[0].Source {
		t.Errorf("%v, another source for what has not changed", err)
	}
}
