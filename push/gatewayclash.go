package push

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// gatewayFamily is what servers must have in common to share a port.
type gatewayFamily string

const (
	plainHTTP gatewayFamily = "HTTP"
	withTLS   gatewayFamily = "TLS"
	plainTCP  gatewayFamily = "TCP"
)

// gatewayPlace is where a server listens.
type gatewayPlace struct {
	bind string
	port uint32
}

// String is the place for people.
func (p gatewayPlace) String() string {
	switch {
	case p.port == 0:
		return p.bind
	case p.bind == "":
		return fmt.Sprintf("port %d", p.port)
	default:
		return fmt.Sprintf("port %d of %s", p.port, p.bind)
	}
}

// gatewayClaim is one server of a Gateway.
type gatewayClaim struct {
	gateway *config.Object
	index   int
	server  *networking.Server
	family  gatewayFamily
}

// gatewayClaims are what the Gateways of one selector have taken of a place.
type gatewayClaims struct {
	selector map[string]string
	families map[gatewayFamily]gatewayClaim // the first of each
	hosts    map[string]gatewayClaim        // of those with TLS
}

// gatewayClashes finds servers that are left out because another Gateway, which comes first, has taken
// what they need of a port on the proxies that both select.
//
// Source: Istio. The first server of a port says whether it is plain HTTP, TLS or TCP; a second TCP server is left
// out, and so is one with TLS that repeats a host. Package gen lays listeners out in that way.
func gatewayClashes(objects Objects) []finding {
	taken := map[gatewayPlace][]*gatewayClaims{}
	var out []finding
	for _, o := range gatewaysByAge(objects) {
		spec := o.Spec.(*networking.Gateway)
		for i, s := range spec.Servers {
			claim, ok := claimOf(o, i, s)
			if !ok {
				continue
			}
			at := placeOf(s)
			f, certain, clashes := claim.against(taken[at])
			if clashes {
				out = append(out, f)
			}
			if !certain {
				taken[at] = claim.take(taken[at])
			}
		}
	}
	return out
}

// gatewaysByAge lists the Gateways in order of precedence.
func gatewaysByAge(objects Objects) []*config.Object {
	var out []*config.Object
	for k, o := range objects.From(config.Key{Kind: config.Gateway}) {
		if k.Kind != config.Gateway {
			break
		}
		out = append(out, o)
	}
	slices.SortFunc(out, olderFirst)
	return out
}

// claimOf says what a server needs of its port; false when it needs none.
func claimOf(o *config.Object, index int, s *networking.Server) (gatewayClaim, bool) {
	c := gatewayClaim{gateway: o, index: index, server: s}
	name := s.GetPort().GetProtocol()
	protocol, _ := registry.ParseProtocol(name)
	switch {
	case protocol == registry.UDP:
		return c, false
	case protocol.IsHTTP() || strings.EqualFold(name, "HTTP_PROXY"):
		c.family = plainHTTP
	case s.Tls == nil:
		c.family = plainTCP
	default:
		c.family = withTLS
	}
	return c, true
}

// placeOf is where s listens: on its target port where it names one, since there is no service in front of the
// router that would translate. All addresses of one family stand for all of both, which a router of two families
// makes of them. A unix socket has no port.
func placeOf(s *networking.Server) gatewayPlace {
	port := s.GetPort().GetNumber()
	//nolint:staticcheck // deprecated in Istio, where the gateway's Service translates ports; a VM has none
	if target := s.GetPort().GetTargetPort(); target != 0 {
		port = target
	}
	ip, err := netip.ParseAddr(s.Bind)
	switch {
	case s.Bind == "" || err == nil && ip.Unmap().IsUnspecified():
		return gatewayPlace{port: port}
	case err == nil:
		return gatewayPlace{ip.Unmap().String(), port}
	default:
		return gatewayPlace{bind: s.Bind}
	}
}

// against finds what keeps the server from its place. certain says that it is so wherever its Gateway is at
// work, since the other one selects everything that its own does.
func (c gatewayClaim) against(taken []*gatewayClaims) (f finding, certain, clashes bool) {
	own := c.gateway.Spec.(*networking.Gateway).Selector
	for _, t := range taken {
		if !selectorsMeet(t.selector, own) {
			continue
		}
		other, why, ok := c.contradiction(t)
		if !ok {
			continue
		}
		all := selectsAll(t.selector, own)
		if !clashes || all {
			f, clashes, certain = c.finding(other, why, all), true, all
		}
		if certain {
			return f, true, true
		}
	}
	return f, certain, clashes
}

// contradiction is what of t cannot stand beside the server, and why not.
func (c gatewayClaim) contradiction(t *gatewayClaims) (other gatewayClaim, why string, ok bool) {
	for _, family := range []gatewayFamily{plainHTTP, withTLS, plainTCP} {
		if other, ok := t.families[family]; ok && family != c.family {
			return other, fmt.Sprintf("%s and %s cannot share a port", c.family, family), true
		}
	}
	switch c.family {
	case plainTCP:
		if other, ok := t.families[plainTCP]; ok {
			return other, "connections without TLS cannot be told apart by host", true
		}
	case withTLS:
		for _, h := range gatewayHosts(c.server) {
			if other, ok := t.hosts[h]; ok {
				return other, "it has host " + h + " too", true
			}
		}
	}
	return gatewayClaim{}, "", false
}

// finding tells that other keeps the server from its port: on all proxies, or on those that both select.
func (c gatewayClaim) finding(other gatewayClaim, why string, all bool) finding {
	p := feed.Problem{
		Severity: feed.Warning, Source: c.gateway.Origin.Source, Object: c.gateway.Key.String(), Field: fmt.Sprintf("spec.servers[%d]", c.index),
		File: c.gateway.Origin.File, Line: c.gateway.Origin.Line,
	}
	where := "on proxies that both select"
	if all {
		p.Severity, where = feed.Error, "on every proxy, since the other selects all that this one does"
	}
	if other.gateway == c.gateway {
		where = "on every proxy"
	}
	p.Text = fmt.Sprintf("the server on %s is left out %s, because spec.servers[%d] of %s (%s) listens there and comes first, by age or by name, and %s: choose another port or other hosts, or select different proxies",
		placeOf(c.server), where, other.index, other.gateway.Key, placeIn(other.gateway), why)
	return finding{problem: p, what: fmt.Sprintf("%s %d %s", other.gateway.Key, other.index, why)}
}

// take adds the server to what is taken of its place.
func (c gatewayClaim) take(taken []*gatewayClaims) []*gatewayClaims {
	own := c.gateway.Spec.(*networking.Gateway).Selector
	i := slices.IndexFunc(taken, func(t *gatewayClaims) bool { return maps.Equal(t.selector, own) })
	if i < 0 {
		i = len(taken)
		taken = append(taken, &gatewayClaims{selector: own, families: map[gatewayFamily]gatewayClaim{}, hosts: map[string]gatewayClaim{}})
	}
	t := taken[i]
	if _, ok := t.families[c.family]; !ok {
		t.families[c.family] = c
	}
	if c.family == withTLS {
		for _, h := range gatewayHosts(c.server) {
			if _, ok := t.hosts[h]; !ok {
				t.hosts[h] = c
			}
		}
	}
	return taken
}

// gatewayHosts are the hosts of a server without the namespaces before them.
func gatewayHosts(s *networking.Server) []string {
	out := make([]string, len(s.Hosts))
	for i, h := range s.Hosts {
		if _, host, ok := strings.Cut(h, "/"); ok {
			h = host
		}
		out[i] = h
	}
	return out
}

// selectorsMeet says whether some workload may have the labels of both.
func selectorsMeet(a, b map[string]string) bool {
	for k, v := range a {
		if other, ok := b[k]; ok && other != v {
			return false
		}
	}
	return true
}

// selectsAll says whether wide selects everything that narrow does.
func selectsAll(wide, narrow map[string]string) bool {
	for k, v := range wide {
		if have, ok := narrow[k]; !ok || have != v {
			return false
		}
	}
	return true
}
