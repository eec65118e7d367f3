package server

import (
	"maps"
	"testing"

	"github.com/ashore-mesh/ashore/xds"
)

// Who has the bundle is written down once; who is yet to have it, and asks for it, is waited for;
// and who has gone is not remembered: certificates come and go for years.
func TestAcknowledgerSorts(t *testing.T) {
	t.Parallel()
	proxy := func(serial, bundle string, asked bool) xds.ProxyBundle {
		return xds.ProxyBundle{Who: xds.Peer{Serial: serial}, Bundle: bundle, Asked: asked}
	}
	a := &acknowledger{bundle: "new", known: map[string]bool{"a": true, "gone": true}}
	fresh, late := a.sort([]xds.ProxyBundle{proxy("a", "new", true), proxy("b", "new", true), proxy("", "", false),
		proxy("c", "", false)})
	if !maps.Equal(fresh, map[string]bool{"b": true}) || late || !maps.Equal(a.known, map[string]bool{"a": true}) {
		t.Errorf("fresh %v, late %v, known %v", fresh, late, a.known)
	}
	if _, late := a.sort([]xds.ProxyBundle{proxy("c", "old", true)}); !late {
		t.Error("nobody waits for one that has the bundle from before")
	}
}

// While there are several roots, a rotation hears soon of workloads that connect with the bundle
// that they have already: after a restart of ashored none of them is late.
func TestAcknowledgerPace(t *testing.T) {
	t.Parallel()
	if paceOfLooks(false, 1) != bundleIdle || paceOfLooks(true, 1) != bundlePace ||
		paceOfLooks(false, 2) != bundlePace {
		t.Error("a rotation is kept waiting, or nothing is looked at for no reason")
	}
}
