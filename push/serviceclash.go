package push

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// servicePlace is where connections to services meet: an address or prefix, invalid for any address, and a port.
type servicePlace struct {
	at   netip.Prefix
	port uint32
}

func (p servicePlace) place() place {
	return place{config.Key{Kind: config.ServiceEntry}, p.String()}
}

// String is the place for people.
func (p servicePlace) String() string {
	switch {
	case !p.at.IsValid():
		return fmt.Sprintf("port %d of addresses that no service has", p.port)
	case p.at.IsSingleIP():
		return fmt.Sprintf("address %s port %d", p.at.Addr(), p.port)
	default:
		return fmt.Sprintf("addresses %s port %d", p.at, p.port)
	}
}

// changeServices brings a changed service among those of its addresses.
func (c *crossings) changeServices(ch pmap.Change[registry.Key, *registry.Service]) {
	for _, at := range servicePlaces(ch.Old) {
		c.services.remove(at, ch.Key)
	}
	for _, at := range servicePlaces(ch.New) {
		c.services.put(at, ch.Key, ch.New)
	}
}

// moveServices looks again at the services of a ServiceEntry, which is told of by its place in a file.
func (c *crossings) moveServices(ch objectChange, services Services) {
	for _, o := range []*config.Object{ch.Old, ch.New} {
		if o == nil {
			continue
		}
		for _, h := range o.Spec.(*networking.ServiceEntry).Hosts {
			for _, at := range servicePlaces(services.At(registry.Key{Host: h, Namespace: ch.Key.Namespace})) {
				c.services.touch(at)
			}
		}
	}
}

// servicePlaces are where a service, which may be nil, needs something for itself. HTTP does by its own addresses
// alone; elsewhere requests are told apart by host, as TLS is by SNI.
func servicePlaces(s *registry.Service) []servicePlace {
	if s == nil {
		return nil
	}
	ips := s.VirtualIPs()
	if len(s.Addresses) == 0 { // only proxies that capture DNS have its allocated addresses
		ips = append(ips, netip.Prefix{})
	}
	var out []servicePlace
	for _, p := range s.Ports {
		for _, ip := range ips {
			at := servicePlace{ip, p.Number}
			if ip.IsValid() {
				at.at = netip.PrefixFrom(ip.Addr().Unmap(), ip.Bits()-(ip.Addr().BitLen()-ip.Addr().Unmap().BitLen())).Masked()
			}
			if at.at.Bits() == 0 || at.at.Addr().IsUnspecified() {
				at.at = netip.Prefix{}
			}
			switch {
			case len(s.AutoAddresses) > 0 && !at.at.IsValid() && p.Protocol == registry.Unknown: // most speak HTTP
			case p.Protocol == registry.UDP, p.Protocol.IsHTTP() && !at.at.IsSingleIP(), p.Protocol.IsTLS() && !at.at.IsValid():
			case slices.Contains(out, at):
			default:
				out = append(out, at)
			}
		}
	}
	return out
}

// serviceClashes finds services that connections to one address and port do not reach, because others have them.
//
// Source: Istio. A sidecar has one listener for an address and port, in which nothing but SNI tells services apart;
// the older has the rest. HTTP is served for all addresses of its port together, where one is not taken by a listener
// of its own. A protocol in which the server speaks first cannot be detected, so that nothing else stands beside it.
// Package gen lays listeners out in that way.
func serviceClashes(at servicePlace, members []*registry.Service, in Inputs) []finding {
	slices.SortFunc(members, func(a, b *registry.Service) int {
		return cmp.Or(a.CompareAge(b), a.Key.Compare(b.Key))
	})
	p := newPlaceSharing(at, members, in)
	var requests []*registry.Service
	for _, m := range members {
		if p.protocol(m).IsHTTP() {
			requests = append(requests, m)
		} else {
			p.share(m, "which is older or first by name")
		}
	}
	for _, m := range requests { // the last, since age does not help them
		p.share(m, "whose protocol is not HTTP")
	}
	return p.out
}

// What connections a service loses.
const (
	anyConnection = ""
	notHTTP       = " that are not HTTP"
)

// placeSharing divides one place among services.
type placeSharing struct {
	at servicePlace
	in Inputs
	// views are sorted by namespace.
	views []placeView
	out   []finding
}

// placeView is what clients of one namespace see of a place.
type placeView struct {
	namespace string              // empty: all that have no view of their own
	holders   []*registry.Service // who have it, or a part by SNI
	sniffed   *registry.Service   // who has its HTTP, where it is detected
}

func newPlaceSharing(at servicePlace, members []*registry.Service, in Inputs) *placeSharing {
	p := &placeSharing{at: at, in: in}
	namespaces := map[string]bool{"": true}
	for _, m := range members {
		for _, ns := range audience(p.exportTo(m), m.Namespace) {
			namespaces[ns] = true
		}
	}
	for _, ns := range slices.Sorted(maps.Keys(namespaces)) {
		p.views = append(p.views, placeView{namespace: ns})
	}
	return p
}

func (p *placeSharing) protocol(s *registry.Service) registry.Protocol {
	port, _ := s.Port(p.at.port)
	return port.Protocol
}

func (p *placeSharing) exportTo(s *registry.Service) []string {
	return exportTo(s.ExportTo, p.in.Mesh.Config.GetDefaultServiceExportTo())
}

// share gives s what is left of the place, and tells of it when that is nothing in any namespace.
func (p *placeSharing) share(s *registry.Service, why string) {
	var winner *registry.Service
	has, requests := false, false
	to := p.exportTo(s)
	for i := range p.views {
		v := &p.views[i]
		if !visibleTo(to, s.Namespace, v.namespace) {
			continue
		}
		first := p.first(v, s)
		switch {
		case first != nil:
			winner = cmp.Or(winner, first)
		case p.protocol(s).IsHTTP():
			has = true
		default:
			v.holders = append(v.holders, s)
			has = true
		}
		requests = p.sniff(v, s, first) || requests
	}
	switch {
	case has || winner == nil:
	case requests:
		p.lose(s, winner, notHTTP, why)
	default:
		p.lose(s, winner, anyConnection, why)
	}
}

// first is who leaves nothing of the place to s, in the eyes of v.
func (p *placeSharing) first(v *placeView, s *registry.Service) *registry.Service {
	i := slices.IndexFunc(v.holders, func(o *registry.Service) bool {
		return o.Host != s.Host && !oneEntry(o, s) && excludes(p.protocol(o), p.protocol(s))
	})
	if i < 0 {
		return nil
	}
	return v.holders[i]
}

// sniff gives the HTTP of a place to s, if its protocol is detected and no older one has it; where the address is
// nobody's own it is shared by host. It says whether s has some. Beside winner, where the server speaks first,
// nothing is detected.
func (p *placeSharing) sniff(v *placeView, s, winner *registry.Service) bool {
	if p.protocol(s) != registry.Unknown || winner != nil && serverFirst(p.protocol(winner)) {
		return false
	}
	if v.sniffed == nil || !p.at.at.IsSingleIP() {
		v.sniffed = s
	}
	return v.sniffed == s
}

// oneEntry says that two services are hosts of one declaration, so that it does not matter which is reached.
func oneEntry(a, b *registry.Service) bool { return a.Object != "" && a.Object == b.Object }

// excludes says whether what has a place, which is not HTTP, leaves nothing of it to other.
func excludes(has, other registry.Protocol) bool {
	return other.IsHTTP() || !has.IsTLS() && !other.IsTLS() || serverFirst(has) || serverFirst(other)
}

// serverFirst says that the server speaks first, so that nothing can be detected.
func serverFirst(p registry.Protocol) bool { return p == registry.MySQL || p == registry.Mongo }

// lose tells that winner has the place and not s, for connections of that kind.
func (p *placeSharing) lose(s, winner *registry.Service, kind, why string) {
	o, first := objectOf(p.in.Objects, s), objectOf(p.in.Objects, winner)
	by := "from " + winner.Source
	if first != nil {
		by = fmt.Sprintf("%s, %s", first.Key, placeIn(first))
	}
	i := slices.IndexFunc(s.Ports, func(port registry.Port) bool { return port.Number == p.at.port })
	f := finding{
		problem: feed.Problem{
			Severity: feed.Warning, Source: s.Source, Object: s.Object, Field: fmt.Sprintf("spec.ports[%d]", i),
			Text: fmt.Sprintf("connections to %s%s do not reach host %s from clients that see both, because that is already the place of %s (%s), %s%s: choose another address or port for one of the two, or export them to different namespaces",
				p.at, kind, s.Host, winner.Host, by, why, p.otherWay(s)),
		},
		what: fmt.Sprintf("%s%s %s %s", p.at, kind, s.Host, winner.Key),
	}
	if o != nil {
		f.problem.File, f.problem.Line = o.Origin.File, o.Origin.Line
	}
	p.out = append(p.out, f)
}

// otherWay is the end of a sentence about connections to addresses that are nobody's own: proxies
// that capture DNS reach s by its allocated address.
func (p *placeSharing) otherWay(s *registry.Service) string {
	if p.at.at.IsValid() || len(s.AutoAddresses) == 0 {
		return ""
	}
	return fmt.Sprintf(" (proxies that capture DNS reach it by its allocated address, %s)", s.AutoAddresses[0])
}

// objectOf is the configuration that a service was made of; nil: none, it comes from a registry.
func objectOf(objects Objects, s *registry.Service) *config.Object {
	kind, name, _ := strings.Cut(s.Object, " ")
	namespace, name, _ := strings.Cut(name, "/")
	return objects.At(config.Key{Kind: config.Kind(kind), Namespace: namespace, Name: name})
}
