package push_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// An outbound listener of a Sidecar that has no service behind it, so that proxies leave it out, is told of.
func TestDanglingEgress(t *testing.T) {
	t.Parallel()
	shop, data := entryOf("shop/web", "web.shop.internal", ""), entryOf("data/db", "db.data.internal", "")
	one := yamlOf(config.ServiceEntry, "shop/one", "hosts: [one.internal], ports: [{number: 7000, name: tcp}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]")
	sidecar := func(name, egress string) string { return yamlOf(config.Sidecar, name, "egress: ["+egress+"]") }
	const port = "port: {number: 9090, name: x, protocol: TCP}, "
	const missing = "port: {number: 9999, name: x, protocol: TCP}, "
	const declare = ", so proxies leave this listener out: write the port of a service, or declare the port"
	tests := []danglingCase{
		{"all is well", []string{shop, data, sidecar("shop/s", "{"+port+`hosts: ["./*"]}, {hosts: ["*/*"]}`)}, nil},
		{"without port", []string{sidecar("shop/s", `{hosts: ["./*"]}`)}, nil},
		{"a proxy's port", []string{shop, sidecar("shop/s", `{port: {number: 9999, name: x, protocol: HTTP_PROXY}, hosts: ["./*"]}`)}, nil},
		{
			"no such port", []string{shop, sidecar("shop/s", "{"+missing+`hosts: ["*/*"]}, {hosts: ["./*"]}`)},
			[]string{"mesh.yaml:6: Sidecar shop/s spec.egress[0].port.number: no service has port 9999 for clients of namespace shop" + declare},
		},
		{
			"not imported", []string{data, sidecar("shop/s", "{"+port+`hosts: ["./*"]}`)},
			[]string{"mesh.yaml:6: Sidecar shop/s spec.egress[0].hosts: no service that the hosts import has port 9090, so proxies leave this listener out: " +
				"import one that does, such as data/db.data.internal"},
		},
		{
			"not exported", []string{entryOf("data/db", "db.data.internal", "exportTo: [.]"), sidecar("shop/s", "{"+port+`hosts: ["*/*"]}`)},
			[]string{"mesh.yaml:6: Sidecar shop/s spec.egress[0].port.number: no service has port 9090 for clients of namespace shop" + declare},
		},
		{"a socket to the only port", []string{one, sidecar("shop/s", "{"+missing+`bind: "unix:///run/x.sock", hosts: ["./*"]}`)}, nil},
		{
			"a socket to one of two ports", []string{shop, sidecar("shop/s", "{"+missing+`bind: "unix:///run/x.sock", hosts: ["./*"]}`)},
			[]string{"mesh.yaml:6: Sidecar shop/s spec.egress[0].port.number: no service has port 9999 or one port alone for clients of namespace shop" + declare},
		},
		{"the default of all namespaces", []string{shop, sidecar("istio-system/s", "{"+port+`hosts: ["./*"]}`)}, nil},
		{
			"the default of all namespaces, no such port", []string{shop, sidecar("istio-system/s", "{"+missing+`hosts: ["./*"]}`)},
			[]string{"mesh.yaml:6: Sidecar istio-system/s spec.egress[0].port.number: no service has port 9999 for clients of any namespace" + declare},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, p := range push.Build(nil, read(t, tt.documents...)).Dangling() {
				got = append(got, p.String())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// UDP is not proxied: a port of it is none.
func TestDanglingEgressUDP(t *testing.T) {
	t.Parallel()
	for protocol, want := range map[registry.Protocol]int{registry.UDP: 1, registry.TCP: 0} {
		in := read(t, yamlOf(config.Sidecar, "shop/s", `egress: [{port: {number: 53, name: x, protocol: TCP}, hosts: ["*/*"]}]`))
		key := registry.Key{Host: "dns.internal", Namespace: "shop"}
		in.Services = in.Services.With(key, &registry.Service{Key: key, Ports: []registry.Port{{Number: 53, Protocol: protocol}}})
		if got := push.Build(nil, in).Dangling(); len(got) != want {
			t.Errorf("protocol %v: got %v, want %d", protocol, got, want)
		}
	}
}
