package server

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/mcp"
)

// A list with a wrong source changes nothing. A source that did not change goes on.
func TestSourcesApply(t *testing.T) {
	t.Parallel()
	m := newSourceMaker(nil, nil, testlog.New(t))
	list := func(sources ...string) (out []settings.Source) {
		for _, s := range sources {
			name, address, _ := strings.Cut(s, "=")
			out = append(out, settings.Source{Name: name, Kind: "mcp",
				Options: &settings.MCPSource{Options: mcp.Options{Address: address, Plaintext: true}}})
		}
		return out
	}
	first, err := m.apply(list("one=127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.apply(list("two=127.0.0.1:2", "wrong=")); err == nil || !m.isActive("mcp:one") || m.isActive("mcp:two") {
		t.Errorf("a list with a wrong source: %v, or it is active", err)
	}
	again, err := m.apply(list("two=127.0.0.1:2", "one=127.0.0.1:1"))
	if err != nil || again.Objects[1].Source != first.Objects[0].Source || !m.isActive("mcp:two") {
		t.Errorf("%v, another source for what has not changed, or the new one is not active", err)
	}
}
