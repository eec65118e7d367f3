package push_test

import (
	"testing"

	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
)

func mode(m security.PeerAuthentication_MutualTLS_Mode) *security.PeerAuthentication_MutualTLS {
	return &security.PeerAuthentication_MutualTLS{Mode: m}
}

const (
	unset      = security.PeerAuthentication_MutualTLS_UNSET
	disable    = security.PeerAuthentication_MutualTLS_DISABLE
	permissive = security.PeerAuthentication_MutualTLS_PERMISSIVE
	strict     = security.PeerAuthentication_MutualTLS_STRICT
)

// The nearest level that sets a mode decides, the oldest object of a level counts, and ports are
// those of workloads.
func TestPeerModes(t *testing.T) {
	t.Parallel()
	web := &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}
	type policy struct {
		namespace, name string
		spec            *security.PeerAuthentication
	}
	ports := func(m ...*security.PeerAuthentication_MutualTLS) map[uint32]*security.PeerAuthentication_MutualTLS {
		out := map[uint32]*security.PeerAuthentication_MutualTLS{}
		for i, m := range m {
			out[uint32(80+i)] = m
		}
		return out
	}
	for name, tc := range map[string]struct {
		policies []policy
		all      push.PeerMode
		at80     push.PeerMode
	}{
		"none":                 {nil, push.PeerPermissive, push.PeerPermissive},
		"mesh":                 {[]policy{{"root", "x", &security.PeerAuthentication{Mtls: mode(strict)}}}, push.PeerStrict, push.PeerStrict},
		"namespace over mesh":  {[]policy{{"root", "x", &security.PeerAuthentication{Mtls: mode(strict)}}, {"a", "x", &security.PeerAuthentication{Mtls: mode(disable)}}}, push.PeerDisable, push.PeerDisable},
		"namespace unset":      {[]policy{{"root", "x", &security.PeerAuthentication{Mtls: mode(strict)}}, {"a", "x", &security.PeerAuthentication{Mtls: mode(unset)}}}, push.PeerStrict, push.PeerStrict},
		"nothing set":          {[]policy{{"root", "x", &security.PeerAuthentication{Mtls: mode(strict)}}, {"a", "x", &security.PeerAuthentication{}}}, push.PeerStrict, push.PeerStrict},
		"other namespace":      {[]policy{{"b", "x", &security.PeerAuthentication{Mtls: mode(strict)}}}, push.PeerPermissive, push.PeerPermissive},
		"workload":             {[]policy{{"a", "x", &security.PeerAuthentication{Mtls: mode(strict)}}, {"a", "y", &security.PeerAuthentication{Selector: web, Mtls: mode(permissive)}}}, push.PeerPermissive, push.PeerPermissive},
		"port":                 {[]policy{{"a", "y", &security.PeerAuthentication{Selector: web, Mtls: mode(strict), PortLevelMtls: ports(mode(disable))}}}, push.PeerStrict, push.PeerDisable},
		"port unset":           {[]policy{{"a", "x", &security.PeerAuthentication{Mtls: mode(strict)}}, {"a", "y", &security.PeerAuthentication{Selector: web, PortLevelMtls: ports(mode(unset))}}}, push.PeerStrict, push.PeerStrict},
		"port alone":           {[]policy{{"a", "y", &security.PeerAuthentication{Selector: web, PortLevelMtls: ports(mode(strict))}}}, push.PeerPermissive, push.PeerStrict},
		"first of a level":     {[]policy{{"a", "x", &security.PeerAuthentication{Mtls: mode(strict)}}, {"a", "y", &security.PeerAuthentication{Mtls: mode(disable)}}}, push.PeerStrict, push.PeerStrict},
		"first workload":       {[]policy{{"a", "x", &security.PeerAuthentication{Selector: web, Mtls: mode(strict)}}, {"a", "y", &security.PeerAuthentication{Selector: web, PortLevelMtls: ports(mode(disable))}}}, push.PeerStrict, push.PeerStrict},
		"workloads of root":    {[]policy{{"root", "x", &security.PeerAuthentication{Selector: web, Mtls: mode(disable)}}}, push.PeerPermissive, push.PeerPermissive},
		"unknown is strictest": {[]policy{{"a", "x", &security.PeerAuthentication{Mtls: mode(9)}}}, push.PeerStrict, push.PeerStrict},
	} {
		e := newEditor()
		for _, p := range tc.policies {
			e.put(config.PeerAuthentication, p.namespace, p.name, p.spec)
		}
		c := push.Build(nil, e.in)
		f := c.Classify(node("a", "10.0.0.1", "app=web"))
		got := push.PeerModesOf(f.PeerAuthentication.Items(), "root", &intern.Lists[push.PortMode]{})
		if got.At(443) != tc.all || got.At(80) != tc.at80 {
			t.Errorf("%s: got %v and at port 80 %v, want %v and %v", name, got.At(443), got.At(80), tc.all, tc.at80)
		}
		labels := map[string]string{"app": "web"}
		for _, port := range []uint32{80, 443} {
			peers := c.Scope(f).PeerAuthentications.Disabling()
			if got, want := peers.Disabled("a", labels, port), got.At(port) == push.PeerDisable; got != want {
				t.Errorf("%s: a client sees that port %d is without mutual TLS: %v, want %v", name, port, got, want)
			}
		}
	}
}
