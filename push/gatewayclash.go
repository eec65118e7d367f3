package push

import (
	"cmp"
	"fmt"
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

// gatewayClaim is one server of a Gateway, with what it needs of its port.
type gatewayClaim struct {
	gateway  *config.Object
	index    int
	server   *networking.Server
	selector selector
	family   gatewayFamily
	hosts    []string // by which it is told apart from others; with TLS alone
}

// claimOf says what a server needs of its port.
func claimOf(o *config.Object, index int, s *networking.Server) *gatewayClaim {
	c := &gatewayClaim{gateway: o, index: index, server: s, selector: selectorOf(o)}
	protocol, _ := registry.ParseProtocol(s.GetPort().GetProtocol())
	switch {
	case protocol.IsHTTP():
		c.family = plainHTTP
	case s.Tls == nil:
		c.family = plainTCP
	default:
		c.family, c.hosts = withTLS, gatewayHosts(s)
	}
	return c
}

// gatewayClashes finds servers of one place that are left out because another Gateway, which comes first, has taken
// what they need of it on the proxies that both select, and tells of each.
//
// Source: Istio. The first server of a port says whether it is plain HTTP, TLS or TCP; a second TCP server is left
// out, and so is one with TLS that repeats a host. Package gen lays listeners out in that way.
func gatewayClashes(members []*gatewayClaim, tell func(*gatewayClaim, finding)) {
	slices.SortFunc(members, func(a, b *gatewayClaim) int {
		return cmp.Or(olderFirst(a.gateway, b.gateway), cmp.Compare(a.index, b.index))
	})
	taken := gatewayClaims{families: map[gatewayFamily]*selectorIndex[*gatewayClaim]{}, hosts: map[string]*selectorIndex[*gatewayClaim]{}}
	for _, c := range members {
		other, why := taken.against(c, (*selectorIndex[*gatewayClaim]).wider)
		certain := other != nil
		if !certain {
			other, why = taken.against(c, (*selectorIndex[*gatewayClaim]).meeting)
			taken.take(c)
		}
		if other != nil {
			tell(c, c.finding(other, why, certain))
		}
	}
}

// gatewayClaims are the servers that have a part of one place, by what they have of it and by selector.
type gatewayClaims struct {
	families map[gatewayFamily]*selectorIndex[*gatewayClaim]
	hosts    map[string]*selectorIndex[*gatewayClaim] // of those with TLS
}

// against finds a server that c cannot stand beside, among those that find finds for its selector, and says why not.
func (t gatewayClaims) against(c *gatewayClaim, find func(*selectorIndex[*gatewayClaim], selector) *gatewayClaim) (other *gatewayClaim, why string) {
	for _, family := range []gatewayFamily{plainHTTP, withTLS, plainTCP} {
		if family == c.family && family != plainTCP {
			continue
		}
		if other := find(t.families[family], c.selector); other != nil {
			if family == c.family {
				return other, "connections without TLS cannot be told apart by host"
			}
			return other, fmt.Sprintf("%s and %s cannot share a port", c.family, family)
		}
	}
	for _, h := range c.hosts {
		if other := find(t.hosts[h], c.selector); other != nil {
			return other, "it has host " + h + " too"
		}
	}
	return nil, ""
}

// take adds c to those that have a part.
func (t gatewayClaims) take(c *gatewayClaim) {
	t.families[c.family] = t.families[c.family].with(c.selector, c)
	for _, h := range c.hosts {
		t.hosts[h] = t.hosts[h].with(c.selector, c)
	}
}

// finding tells that other keeps the server from its port: on all proxies, or on those that both select.
func (c *gatewayClaim) finding(other *gatewayClaim, why string, all bool) finding {
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

// placeOf is where s listens on routers whose services do not map its port. All addresses of one family
// stand for all of both, which a router of two families makes of them. A unix socket has no port.
func placeOf(s *networking.Server) gatewayPlace {
	port := listenPort(s, nil)
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
