package push_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// WorkloadEntries are found by their address as it is now.
func TestWorkloadEntriesAt(t *testing.T) {
	t.Parallel()
	var c *push.Context
	in := push.Inputs{Mesh: &push.Mesh{}}
	for i, tc := range []struct{ entry, address, want string }{
		{"bank/a", "10.0.0.1", "10.0.0.1: bank/a"},
		{"shop/b", "::ffff:10.0.0.1", "10.0.0.1: bank/a shop/b"},
		{"shop/c", "10.0.0.2", "10.0.0.1: bank/a shop/b, 10.0.0.2: shop/c"},
		{"bank/a", "10.0.0.2", "10.0.0.1: shop/b, 10.0.0.2: bank/a shop/c"},
		{"shop/b", "b.test", "10.0.0.2: bank/a shop/c"},
		{"shop/c", "", "10.0.0.2: bank/a"}, // deleted
		{"shop/b", "10.0.0.1", "10.0.0.1: shop/b, 10.0.0.2: bank/a"},
	} {
		namespace, name, _ := strings.Cut(tc.entry, "/")
		key := config.Key{Kind: config.WorkloadEntry, Namespace: namespace, Name: name}
		if tc.address == "" {
			in.Objects = in.Objects.Without(key)
		} else {
			in.Objects = in.Objects.With(key, &config.Object{Key: key,
				Spec: &networking.WorkloadEntry{Address: tc.address}})
		}
		c = push.Build(c, in)
		var got []string
		for _, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
			text := ""
			for o := range c.WorkloadEntriesAt(netip.MustParseAddr(address)) {
				text += fmt.Sprintf(" %s/%s", o.Namespace, o.Name)
			}
			if text != "" {
				got = append(got, address+":"+text)
			}
		}
		if got := strings.Join(got, ", "); got != tc.want {
			t.Errorf("step %d: got %q, want %q", i, got, tc.want)
		}
	}
}
