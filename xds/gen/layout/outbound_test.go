package layout

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
)

func (p OutboundPort) String() string {
	s := fmt.Sprintf("%s group=%d", p.At.Name(), p.Group)
	if p.Bound {
		s += " bound"
	}
	if p.Proxy {
		s += " proxy"
	}
	if p.Route != "" {
		s += " route=" + p.Route
	}
	for _, t := range p.Tcp {
		s += fmt.Sprintf(" tcp=%s:%d", t.Service.Host, t.Port.Number)
		if t.Subnet.IsValid() {
			s += "@" + t.Subnet.String()
		}
	}
	return s
}

func (r OutboundRoute) String() string {
	return fmt.Sprintf("%s group=%d port=%d host=%s", r.Name, r.Group, r.Port, r.Host)
}

func TestOutboundLayout(t *testing.T) {
	t.Parallel()
	web := gentest.Service("web", 1, "10.0.0.1", "http/80")
	api := gentest.Service("api", 2, "", "http/80", "grpc/90")
	db := gentest.Service("db", 3, "10.0.0.3", "mysql/3306")
	raw := gentest.Service("raw", 4, "", "tcp/80")
	oldRaw := gentest.Service("oldraw", 9, "", "tcp/80")
	sniffed := gentest.Service("sniffed", 1, "10.0.0.4", "x/80")
	blind := gentest.Service("blind", 1, "", "x/80")
	lan := gentest.Service("lan", 1, "10.1.0.0/16 10.0.0.5", "tcp/5000")
	mysql := gentest.Service("mysql", 1, "", "mysql/80")
	oldMysql := gentest.Service("oldmysql", 9, "", "mysql/80")
	multi := gentest.Service("multi", 1, "10.0.0.6", "http/81", "tcp/82")
	own := gentest.Service("own", 1, "", "http/15001", "http/15090", "tcp/15006")
	six := gentest.Service("six", 1, "2001:2::1", "tcp/70")
	udp := gentest.Service("udp", 1, "10.0.0.9", "udp/53")

	given := func(host string, ports ...string) *registry.Service {
		s := gentest.Service(host, 1, "", ports...)
		s.AutoAddresses = []netip.Addr{netip.MustParseAddr("240.240.0.1"), netip.MustParseAddr("2001:2::1")}
		return s
	}
	capturing := func(sc *push.Scope) { sc.CapturesDNS = true }

	port := func(bind, protocol string, number uint32, mode networking.CaptureMode) *networking.IstioEgressListener {
		l := &networking.IstioEgressListener{Bind: bind, CaptureMode: mode}
		if protocol != "" {
			l.Port = &networking.SidecarPort{Number: number, Protocol: protocol}
		}
		return l
	}
	captured := networking.CaptureMode_DEFAULT
	tests := []struct {
		name   string
		scope  *push.Scope
		edit   func(*push.Scope)
		ports  []string
		routes []string
	}{
		{name: "http services share a wildcard port", scope: gentest.Scope(gentest.Egress(nil, api, web)),
			ports:  []string{"0.0.0.0_80 group=0 route=80", "0.0.0.0_90 group=0 route=90"},
			routes: []string{"80 group=0 port=80 host=", "90 group=0 port=90 host="}},
		{name: "tcp listens on the virtual IP", scope: gentest.Scope(gentest.Egress(nil, db)),
			ports: []string{"10.0.0.3_3306 group=0 tcp=db:3306"}},
		{name: "allocated addresses do not count without DNS capture", scope: gentest.Scope(gentest.Egress(nil, given("db", "tcp/5432", "x/90", "tls/443", "http/80"))),
			ports: []string{"0.0.0.0_80 group=0 route=80", "0.0.0.0_90 group=0 route=90 tcp=db:90",
				"0.0.0.0_443 group=0 tcp=db:443", "0.0.0.0_5432 group=0 tcp=db:5432"},
			routes: []string{"80 group=0 port=80 host=", "90 group=0 port=90 host="}},
		{name: "with DNS capture: allocated addresses of the proxy's IP version, and TLS on the wildcard too",
			scope: gentest.Scope(gentest.Egress(nil, given("db", "tcp/5432", "x/90", "tls/443", "http/80"))), edit: capturing,
			ports: []string{"0.0.0.0_80 group=0 route=80", "0.0.0.0_443 group=0 tcp=db:443",
				"240.240.0.1_90 group=0 route=db:90 tcp=db:90", "240.240.0.1_443 group=0 tcp=db:443", "240.240.0.1_5432 group=0 tcp=db:5432"},
			routes: []string{"80 group=0 port=80 host=", "db:90 group=0 port=90 host=db"}},
		{name: "of IPv6", scope: gentest.Scope(gentest.Egress(nil, given("db", "tcp/5432"))), edit: func(sc *push.Scope) { sc.CapturesDNS, sc.IPv6Only = true, true },
			ports: []string{"2001:2::1_5432 group=0 tcp=db:5432"}},
		{name: "of both", scope: gentest.Scope(gentest.Egress(nil, given("db", "tcp/5432"))), edit: func(sc *push.Scope) { sc.CapturesDNS, sc.DualStack = true, true },
			ports: []string{"240.240.0.1_5432 group=0 tcp=db:5432", "2001:2::1_5432 group=0 tcp=db:5432"}},
		{name: "declared addresses count alone", scope: gentest.Scope(gentest.Egress(nil, gentest.Service("tls", 1, "10.0.0.1", "tls/443"))), edit: capturing,
			ports: []string{"10.0.0.1_443 group=0 tcp=tls:443"}},
		{name: "an address of the other version alone is better than none", scope: gentest.Scope(gentest.Egress(nil, six)),
			ports: []string{"2001:2::1_70 group=0 tcp=six:70"}},
		{name: "prefixes listen on the wildcard", scope: gentest.Scope(gentest.Egress(nil, lan)),
			ports: []string{"0.0.0.0_5000 group=0 tcp=lan:5000@10.1.0.0/16", "10.0.0.5_5000 group=0 tcp=lan:5000"}},
		{name: "http and tcp on one port", scope: gentest.Scope(gentest.Egress(nil, api, raw, oldRaw)),
			ports:  []string{"0.0.0.0_80 group=0 route=80 tcp=oldraw:80 tcp=raw:80", "0.0.0.0_90 group=0 route=90"},
			routes: []string{"80 group=0 port=80 host=", "90 group=0 port=90 host="}},
		{name: "server first port is not mixed, older http wins", scope: gentest.Scope(gentest.Egress(nil, mysql, gentest.Service("h", 5, "", "http/80"))),
			ports: []string{"0.0.0.0_80 group=0 route=80"}, routes: []string{"80 group=0 port=80 host="}},
		{name: "server first port is not mixed, older mysql wins", scope: gentest.Scope(gentest.Egress(nil, oldMysql, raw, api)),
			ports:  []string{"0.0.0.0_80 group=0 tcp=oldmysql:80", "0.0.0.0_90 group=0 route=90"},
			routes: []string{"90 group=0 port=90 host="}},
		{name: "sniffed on its own address", scope: gentest.Scope(gentest.Egress(nil, sniffed, web)),
			ports:  []string{"0.0.0.0_80 group=0 route=80", "10.0.0.4_80 group=0 route=sniffed:80 tcp=sniffed:80"},
			routes: []string{"80 group=0 port=80 host=", "sniffed:80 group=0 port=80 host=sniffed"}},
		{name: "sniffed on the wildcard", scope: gentest.Scope(gentest.Egress(nil, blind)),
			ports: []string{"0.0.0.0_80 group=0 route=80 tcp=blind:80"}, routes: []string{"80 group=0 port=80 host="}},
		{name: "udp is not proxied", scope: gentest.Scope(gentest.Egress(nil, udp))},
		{name: "reserved ports", scope: gentest.Scope(gentest.Egress(nil, own))},
		{name: "interception none binds to the loopback address", scope: gentest.Scope(gentest.Egress(nil, db, web)),
			edit: func(sc *push.Scope) {
				sc.Interception, sc.Bind = push.None, netip.MustParseAddr("127.0.0.7")
			},
			ports:  []string{"127.0.0.7_80 group=0 bound route=80", "127.0.0.7_3306 group=0 bound tcp=db:3306"},
			routes: []string{"80 group=0 port=80 host="}},
		{name: "http proxy port", scope: gentest.Scope(gentest.Egress(nil, web)),
			edit:   func(sc *push.Scope) { sc.HTTPProxyPort = 15002 },
			ports:  []string{"0.0.0.0_80 group=0 route=80", "127.0.0.1_15002 group=0 bound proxy route=http_proxy"},
			routes: []string{"80 group=0 port=80 host=", "http_proxy group=0 port=0 host="}},
		{name: "IPv6 only", scope: gentest.Scope(gentest.Egress(nil, web, six)),
			edit:   func(sc *push.Scope) { sc.IPv6Only = true },
			ports:  []string{"::_80 group=0 route=80", "2001:2::1_70 group=0 tcp=six:70"},
			routes: []string{"80 group=0 port=80 host="}},
		{name: "a port of an egress listener is taken from the catch-all",
			scope:  gentest.Scope(gentest.Egress(port("", "HTTP", 80, captured), web), gentest.Egress(nil, api, raw)),
			ports:  []string{"0.0.0.0_80 group=0 route=80", "0.0.0.0_90 group=1 route=90"},
			routes: []string{"80 group=0 port=80 host=", "90 group=1 port=90 host="}},
		{name: "an egress listener's protocol decides, and who has its port",
			scope: gentest.Scope(gentest.Egress(port("", "TCP", 90, captured), db, multi, api,
				gentest.Service("udp90", 1, "", "udp/90"))),
			ports: []string{"0.0.0.0_90 group=0 tcp=api:90"}},
		{name: "nobody has the port of an egress listener",
			scope: gentest.Scope(gentest.Egress(port("127.0.0.5", "TLS", 8444, networking.CaptureMode_NONE), db, multi),
				gentest.Egress(port("127.0.0.5", "HTTP", 7000, networking.CaptureMode_NONE), web))},
		{name: "capture mode none on a bind address",
			scope:  gentest.Scope(gentest.Egress(port("127.0.0.5", "HTTP", 80, networking.CaptureMode_NONE), web)),
			ports:  []string{"127.0.0.5_80 group=0 bound route=80"},
			routes: []string{"80 group=0 port=80 host="}},
		{name: "capture mode none without bind address",
			scope: gentest.Scope(gentest.Egress(port("", "TCP", 3306, networking.CaptureMode_NONE), db)),
			ports: []string{"127.0.0.1_3306 group=0 bound tcp=db:3306"}},
		{name: "a socket has the services with one port", scope: gentest.Scope(gentest.Egress(port("unix:///run/db.sock", "TCP", 0, networking.CaptureMode_NONE), db, multi)),
			ports: []string{"unix:///run/db.sock_0 group=0 bound tcp=db:3306"}},
		{name: "redirected connections arrive at the loopback address",
			scope: gentest.Scope(gentest.Egress(port("", "TCP", 15001, networking.CaptureMode_NONE), own),
				gentest.Egress(port("127.0.0.1", "TCP", 15006, networking.CaptureMode_NONE), own),
				gentest.Egress(port("10.0.0.77", "TCP", 15001, networking.CaptureMode_NONE), own)),
			ports: []string{"10.0.0.77_15001 group=2 bound tcp=own:15001"}},
		{name: "bind without port", scope: gentest.Scope(gentest.Egress(port("127.0.0.5", "", 0, networking.CaptureMode_NONE), db, web)),
			ports:  []string{"127.0.0.5_80 group=0 bound route=80", "127.0.0.5_3306 group=0 bound tcp=db:3306"},
			routes: []string{"80 group=0 port=80 host="}},
		{name: "unix socket", scope: gentest.Scope(gentest.Egress(port("unix:///run/web.sock", "HTTP", 0, networking.CaptureMode_NONE), web)),
			ports:  []string{"unix:///run/web.sock_0 group=0 bound route=unix:///run/web.sock"},
			routes: []string{"unix:///run/web.sock group=0 port=0 host="}},
		{name: "http proxy of a Sidecar", scope: gentest.Scope(gentest.Egress(port("", "HTTP_PROXY", 3128, networking.CaptureMode_NONE), web)),
			ports:  []string{"127.0.0.1_3128 group=0 bound proxy route=3128"},
			routes: []string{"3128 group=0 port=0 host="}},
		{name: "two groups with one number have two routes",
			scope: gentest.Scope(gentest.Egress(port("127.0.0.5", "HTTP", 80, networking.CaptureMode_NONE), web),
				gentest.Egress(nil, api)),
			ports: []string{"0.0.0.0_80 group=1 route=0.0.0.0_80", "0.0.0.0_90 group=1 route=90",
				"127.0.0.5_80 group=0 bound route=80"},
			routes: []string{"0.0.0.0_80 group=1 port=80 host=", "80 group=0 port=80 host=",
				"90 group=1 port=90 host="}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.edit != nil {
				tt.edit(tt.scope)
			}
			var lists intern.Lists[egressGroup]
			got := layOutOutbound(outboundInOf(&lists, tt.scope))
			var ports, routes []string
			for _, p := range got.Ports {
				ports = append(ports, p.String())
			}
			for _, r := range got.Routes {
				routes = append(routes, r.String())
			}
			if d := cmp.Diff(tt.ports, ports); d != "" {
				t.Errorf("ports (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.routes, routes); d != "" {
				t.Errorf("routes (-want +got):\n%s", d)
			}
		})
	}
}
