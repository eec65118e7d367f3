package services

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// The proxy of a Pod serves the ports of every Service that has the Pod, at their target ports.
func TestInbound(t *testing.T) {
	t.Parallel()
	o := testObjects()
	for _, object := range decode(t, `kind: Service
metadata: {namespace: shop, name: web}
spec:
  clusterIP: 10.96.0.1
  ports: [{port: 80, name: http, targetPort: 8080}, {port: 81, name: admin, targetPort: named}, {port: 82, name: lacks}]
---
kind: Service
metadata: {namespace: shop, name: headless}
spec: {clusterIP: None, ports: [{port: 90, name: tcp, targetPort: 9000}]}
---
`+sliceOf+`ports: [{name: http, port: 8080}, {name: admin, port: 8081}]
endpoints: [{addresses: [10.0.0.1], conditions: {ready: false}, `+targeted+`}, {addresses: [10.0.0.2]}]
---
kind: EndpointSlice
metadata: {namespace: shop, name: headless-1, labels: {kubernetes.io/service-name: headless}}
ports: [{name: tcp, port: 9000}]
endpoints: [{addresses: [10.0.0.1], `+targeted+`}]
---
kind: Pod
metadata: {namespace: shop, name: pod-1, labels: {security.istio.io/tlsMode: istio}}
status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}
`) {
		set(o, object, false)
	}
	o.convert()
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for k := range o.used() {
		s := o.services[k].mesh.instances[0]
		in.Services = in.Services.With(s.Service.Key, s.Service)
		in.Endpoints = in.Endpoints.With(s.Service.Key, s.Endpoints)
	}
	var lists intern.Lists[netip.Addr]
	inbound := func(namespace string, addresses ...string) (out []string) {
		n := push.Node{Namespace: namespace}
		var ips []netip.Addr
		for _, a := range addresses {
			ips = append(ips, netip.MustParseAddr(a))
		}
		n.IPs = lists.Of(ips)
		for _, i := range push.Build(nil, in).Classify(n).Own.Inbound.Items() {
			out = append(out, fmt.Sprintf("%s:%d>%d %v", i.Service.Host, i.Port.Number, i.TargetPort, i.Mutual))
		}
		return out
	}
	want := []string{"web.shop.svc.cluster.local:80>8080 true", "web.shop.svc.cluster.local:81>8081 true",
		"headless.shop.svc.cluster.local:90>9000 true"}
	if got := inbound("shop", "10.0.0.1", "fd00::1"); !slices.Equal(got, want) {
		t.Errorf("the Pod serves %q, want %q", got, want)
	}
	if got := inbound("other", "10.0.0.1"); got != nil {
		t.Errorf("a proxy of another namespace serves %q", got)
	}
}

// A service of two clusters has the endpoints of both, and each proxy the virtual IP of its own.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	var parts []registry.Part
	for i, cluster := range []string{"east", "west"} {
		o := testObjects()
		options := *o.options
		options.Cluster = cluster
		o.options = &options
		s, p := webService(), webPod()
		s.Spec.ClusterIP, p.Status.PodIP = fmt.Sprintf("10.96.0.%d", i+1), fmt.Sprintf("10.0.0.%d", i+1)
		e := webSlice(true)
		e.Endpoints[0].Addresses[0] = p.Status.PodIP
		for _, object := range []any{s, p, e} {
			set(o, object, false)
		}
		o.convert()
		parts = append(parts, registry.Part{Source: cluster,
			Instances: o.services[key{Namespace: "shop", Name: "web"}].mesh.instances[0]})
	}
	joined := registry.JoinConfig{}.Join(parts)
	if len(joined) != 1 || joined[0].Endpoints.Len() != 2 || len(joined[0].Problems()) > 0 {
		t.Fatalf("got %+v with %v, want one service with both endpoints", joined, joined[0].Problems())
	}
	if got := joined[0].Service.In("west").Addresses[0].String(); got != "10.96.0.2/32" {
		t.Errorf("in cluster west the address is %s", got)
	}
}
