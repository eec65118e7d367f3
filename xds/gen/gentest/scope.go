package gentest

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// Service makes a service of namespace shop: ports are "http/80", "mysql/3306", "?/90".
func Service(host string, age int, vips string, ports ...string) *registry.Service {
	s := &registry.Service{Key: registry.Key{Host: host, Namespace: "shop"}, Created: time.Unix(int64(1000-age), 0)}
	for _, v := range strings.Fields(vips) {
		if !strings.Contains(v, "/") {
			a := netip.MustParseAddr(v)
			s.Addresses = append(s.Addresses, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		s.Addresses = append(s.Addresses, netip.MustParsePrefix(v))
	}
	for _, p := range ports {
		var name string
		var number uint32
		if _, err := fmt.Sscanf(strings.Replace(p, "/", " ", 1), "%s %d", &name, &number); err != nil {
			panic(p)
		}
		s.Ports = append(s.Ports, registry.Port{Name: name, Number: number, Protocol: envoy.ParseProtocol(name)})
	}
	return s
}

// Scope makes a scope of one egress group for each argument.
func Scope(groups ...*push.Egress) *push.Scope {
	var egress intern.Lists[*push.Egress]
	return &push.Scope{
		Mesh:   &push.Mesh{Config: &mesh.MeshConfig{}, Domain: "cluster.local"},
		Egress: egress.Of(groups),
	}
}

// Egress makes an egress group.
func Egress(l *networking.IstioEgressListener, services ...*registry.Service) *push.Egress {
	var lists intern.Lists[*registry.Service]
	return &push.Egress{Listener: l, Services: lists.Of(services)}
}
