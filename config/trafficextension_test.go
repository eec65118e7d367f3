package config

import (
	"fmt"
	"strings"
	"testing"

	extensions "istio.io/api/extensions/v1alpha1"
)

// A script is placed in the directions and at the ports that it matches, each once.
func TestExtensionPatches(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ spec, want string }{
		"all": {``, "SIDECAR_OUTBOUND 0 fault, SIDECAR_INBOUND 0 fault, GATEWAY 0 fault"},
		"phase": {`phase: AUTHN`,
			"SIDECAR_OUTBOUND 0 fault, SIDECAR_INBOUND 0 tokens, GATEWAY 0 tokens"},
		"server":       {`phase: AUTHZ, match: [{mode: SERVER}]`, "SIDECAR_INBOUND 0 custom"},
		"client":       {`match: [{mode: CLIENT}]`, "SIDECAR_OUTBOUND 0 fault, GATEWAY 0 fault"},
		"ports":        {`match: [{mode: SERVER, ports: [{number: 9}, {number: 8}]}, {mode: SERVER, ports: [{number: 8}]}]`, "SIDECAR_INBOUND 8 fault, SIDECAR_INBOUND 9 fault"},
		"all ports":    {`match: [{mode: SERVER, ports: [{number: 9}]}, {mode: SERVER}]`, "SIDECAR_INBOUND 0 fault"},
		"both or none": {`match: [{mode: CLIENT_AND_SERVER, ports: [{number: 9}]}]`, "SIDECAR_OUTBOUND 9 fault, SIDECAR_INBOUND 9 fault, GATEWAY 9 fault"},
	} {
		r := Parse("f.yaml", []byte("apiVersion: extensions.istio.io/v1alpha1\nkind: TrafficExtension\n"+
			"metadata: {name: a}\nspec: {lua: {inlineCode: x}, "+tc.spec+"}\n"))
		if len(r.Objects) != 1 {
			t.Fatalf("%s: %v", name, r.Problems)
		}
		var got []string
		for _, p := range ExtensionPatches(r.Objects[0]).ConfigPatches {
			m := p.Match.GetListener()
			before := m.FilterChain.Filter.SubFilter.Name
			got = append(got, fmt.Sprint(p.Match.Context, " ", m.PortNumber, " ", before[strings.LastIndexByte(before, '.')+1:]))
			if _, err := PatchValue(p); err != nil && !strings.Contains(err.Error(), "does not know") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := strings.Join(got, ", "); got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tc.want)
		}
	}
}

// Phases come in the order of the filters, unspecified last, and a high priority before a low one.
func TestCompareExtensions(t *testing.T) {
	t.Parallel()
	var inOrder []*extensions.TrafficExtension
	for _, spec := range []string{"phase: AUTHN, priority: 2", "phase: AUTHN", "phase: AUTHN, priority: -1", "phase: AUTHZ",
		"phase: STATS", "priority: 9", "priority: 0"} {
		r := Parse("f.yaml", []byte("apiVersion: extensions.istio.io/v1alpha1\nkind: TrafficExtension\n"+
			"metadata: {name: a}\nspec: {lua: {inlineCode: x}, "+spec+"}\n"))
		if len(r.Objects) != 1 {
			t.Fatalf("%s: %v", spec, r.Problems)
		}
		inOrder = append(inOrder, r.Objects[0].Spec.(*extensions.TrafficExtension))
	}
	for i := range inOrder[1:] {
		if CompareExtensions(inOrder[i], inOrder[i+1]) >= 0 || CompareExtensions(inOrder[i+1], inOrder[i]) <= 0 {
			t.Errorf("%v does not come before %v", inOrder[i], inOrder[i+1])
		}
	}
}
