package server

import (
	"testing"

	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// Sources that are made and not taken change nothing.
func TestSourcesNotTaken(t *testing.T) {
	t.Parallel()
	m := newSourceMaker(nil, nil, testlog.New(t))
	list := func(names ...string) (out []settings.Source) {
		for _, n := range names {
			out = append(out, settings.Source{Name: n, Kind: "mcp",
				Options: &settings.MCPSource{Address: "127.0.0.1:1", Plaintext: true}})
		}
		return out
	}
	first, take, err := m.make(list("one"))
	if err != nil {
		t.Fatal(err)
	}
	take()
	if _, _, err := m.make(list("two")); err != nil {
		t.Fatal(err)
	}
	if !m.isActive("mcp:one") || m.isActive("mcp:two") {
		t.Error("the active source is not the one that was taken")
	}
	again, _, err := m.make(list("one"))
	if err != nil || again.Objects[0].Source != first.Objects[0].Source {
		t.Errorf("%v, another source for what has not changed", err)
	}
}
