package server

import (
	"maps"
	"testing"

	"github.com/ashore-mesh/ashore/xds"
)

// Workloads have a bundle when a proxy with their certificate has acknowledged it.
func TestHaving(t *testing.T) {
	t.Parallel()
	proxy := func(serial, bundle string) xds.ProxyBundle {
		return xds.ProxyBundle{Who: xds.Peer{Serial: serial}, Bundle: bundle}
	}
	got := having([]xds.ProxyBundle{proxy("a", "new"), proxy("b", "old"), proxy("", "new"), proxy("c", "")}, "new")
	if !maps.Equal(got, map[string]string{"a": "new"}) {
		t.Errorf("got %v, want a alone", got)
	}
}
