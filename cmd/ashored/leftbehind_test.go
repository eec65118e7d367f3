package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/storage"
)

// What stayed behind is told at each start until it was written anew, whatever becomes of it then,
// and for 30 days.
func TestLeftBehindUntil(t *testing.T) {
	t.Parallel()
	home, shared := openBolt(t), onStore(openBolt)(t)
	key := config.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "web"}
	note := func(ago time.Duration, list ...storage.Unusable) {
		t.Helper()
		if err := noteUnmoved(t.Context(), home, list, time.Now().Add(-ago)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, want ...string) {
		t.Helper()
		left, err := readLeftBehind(t.Context(), home, shared.store, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range left.problems() {
			got = append(got, p.Object)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: it tells of %v, want %v", what, got, want)
		}
	}
	web, earl := storage.Unusable{Key: key, Why: "damaged"}, storage.Unusable{Key: odd, Why: "unknown"}
	note(0, web, earl)
	want("moved", key.String(), odd.String())
	note(31*24*time.Hour, earl)
	want("moved long ago")
	note(29*24*time.Hour, web)
	want("moved again", key.String())
	shared.must(serviceFile("web"))
	want("written anew")
	if err := shared.store.Delete(t.Context(), key, "", "test"); err != nil {
		t.Fatal(err)
	}
	want("deleted then")
}
