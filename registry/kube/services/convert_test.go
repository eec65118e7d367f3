package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/kube"
)

func testObjects() *objects {
	o := kube.DefaultOptions()
	o.Cluster = "east"
	return newObjects(&kube.Cluster{Name: "kubernetes", Options: o})
}

// set sets what is used of an object of the API server.
func set(o *objects, object any, deleted bool) {
	switch x := object.(type) {
	case *corev1.Service:
		o.setService(stripService(x), deleted)
	case *discoveryv1.EndpointSlice:
		o.setSlice(newSlice(x), deleted)
	case *corev1.Pod:
		o.setPod(stripPods(o.options.Cluster)(x), deleted)
	case *corev1.Node:
		o.setNode(stripNode(x), deleted)
	case *corev1.Namespace:
		o.setNamespace(stripNamespace(x), deleted)
	}
}

// decode returns the objects of a YAML stream.
func decode(t *testing.T, text string) (out []any) {
	t.Helper()
	for one := range strings.SplitSeq(text, "---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(one), &kind); err != nil {
			t.Fatal(err)
		}
		object := newObject(kind.Kind)
		if err := yaml.UnmarshalStrict([]byte(one), object); err != nil {
			t.Fatal(err)
		}
		out = append(out, object)
	}
	return out
}

func newObject(kind string) any {
	switch kind {
	case "Service":
		return &corev1.Service{}
	case "EndpointSlice":
		return &discoveryv1.EndpointSlice{}
	case "Pod":
		return &corev1.Pod{}
	case "Node":
		return &corev1.Node{}
	default:
		return &corev1.Namespace{}
	}
}

// describe describes what the services of a cluster became.
func describe(o *objects) string {
	o.convert()
	var out strings.Builder
	for _, k := range sortedKeys(o.used()) {
		s := o.services[k].mesh.instances[0].Service
		fmt.Fprintf(&out, "%s %s %v", s.Host, s.Resolution, s.Addresses)
		for _, p := range s.Ports {
			fmt.Fprintf(&out, " %d/%s/%s>%d", p.Number, p.Name, p.Protocol, p.TargetPort)
		}
		if len(s.ExportTo) > 0 {
			fmt.Fprintf(&out, " to %v", s.ExportTo)
		}
		if s.Distribution != "" {
			fmt.Fprintf(&out, " %s", s.Distribution)
		}
		out.WriteString("\n")
		for _, ep := range o.services[k].mesh.instances[0].Endpoints.All() {
			fmt.Fprintf(&out, "  %s %v %s %s", ep.Address, ep.Ports, ep.Health, ep.Workload)
			if ep.ServiceAccount != "" {
				fmt.Fprintf(&out, " as %s", ep.ServiceAccount)
			}
			if ep.Locality != (registry.Locality{}) {
				fmt.Fprintf(&out, " in %s", ep.Locality)
			}
			if ep.Network != "" {
				fmt.Fprintf(&out, " on %s", ep.Network)
			}
			if ep.TLSMode != "" {
				fmt.Fprintf(&out, " tls %s", ep.TLSMode)
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// The parts of manifests.
const (
	webMeta  = "metadata: {namespace: shop, name: web}\n"
	sliceOf  = "kind: EndpointSlice\nmetadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}\n"
	podAt    = "kind: Pod\nmetadata: {namespace: shop, name: pod-1}\nstatus: {podIP: 10.0.0.1}\n"
	targeted = "targetRef: {kind: Pod, name: pod-1}"
)

func TestConvert(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ objects, want string }{
		"protocols": {
			"kind: Service\n" + webMeta + `spec:
  clusterIP: 10.96.0.1
  ports:
  - {port: 80, name: http-web}
  - {port: 81, name: web, appProtocol: kubernetes.io/h2c}
  - {port: 82, name: ws, appProtocol: kubernetes.io/ws}
  - {port: 83, name: wss, appProtocol: kubernetes.io/wss}
  - {port: 84, name: http, appProtocol: grpc}
  - {port: 85, name: http-x, appProtocol: example.com/own}
  - {port: 86, name: GRPC-Web-x}
  - {port: 3306, name: db}
  - {port: 53, name: dns-tcp}
  - {port: 53, name: dns, protocol: UDP}
  - {port: 87, name: sctp, protocol: SCTP}
  - {port: 88, name: tls-x}
  - {port: 89, name: udp-x}
`, `web.shop.svc.cluster.local STATIC [10.96.0.1/32] 80/http-web/HTTP>0 81/web/HTTP2>0 82/ws/HTTP>0 83/wss/HTTPS>0 ` +
				`84/http/GRPC>0 85/http-x/UNKNOWN>0 86/GRPC-Web-x/GRPC-WEB>0 3306/db/TCP>0 53/dns-tcp/TCP>0 88/tls-x/TLS>0 ` +
				"89/udp-x/UNKNOWN>0\n",
		},
		"target ports": {
			"kind: Service\n" + webMeta + `spec:
  clusterIP: 10.96.0.1
  ports: [{port: 80, name: a, targetPort: 8080}, {port: 81, name: b, targetPort: named}, {port: 82, name: c}]
---
` + sliceOf + `ports: [{name: a, port: 8080}, {name: b, port: 9090}, {name: c, port: 82}]
endpoints: [{addresses: [10.0.0.1]}]
---
kind: EndpointSlice
metadata: {namespace: shop, name: web-2, labels: {kubernetes.io/service-name: web}}
ports: [{name: b, port: 9191}, {name: c, port: 82}]
endpoints: [{addresses: [10.0.0.2]}]
`, `web.shop.svc.cluster.local STATIC [10.96.0.1/32] 80/a/UNKNOWN>8080 81/b/UNKNOWN>0 82/c/UNKNOWN>0
  10.0.0.1 map[b:9090] healthy 
  10.0.0.2 map[a:0 b:9191] healthy 
`,
		},
		"an unnamed port": {
			"kind: Service\n" + webMeta + `spec: {clusterIP: 10.96.0.1, ports: [{port: 80, targetPort: x}]}
---
` + sliceOf + `ports: [{port: 8080}]
endpoints: [{addresses: [10.0.0.1]}]
`, `web.shop.svc.cluster.local STATIC [10.96.0.1/32] 80//UNKNOWN>0
  10.0.0.1 map[:8080] healthy 
`,
		},
		"a headless Service of TCP passes through": {
			"kind: Service\n" + webMeta + `spec: {clusterIP: None, ports: [{port: 80, name: tcp-x, targetPort: 81}]}
---
` + sliceOf + `ports: [{name: tcp-x, port: 81}]
endpoints: [{addresses: [10.0.0.1]}]
`, `web.shop.svc.cluster.local NONE [] 80/tcp-x/TCP>0
  10.0.0.1 map[tcp-x:81] healthy 
`,
		},
		"a headless Service of HTTP is balanced": {
			"kind: Service\n" + webMeta + `spec: {clusterIP: None, ports: [{port: 80, name: grpc, targetPort: 81}]}
---
` + sliceOf + `ports: [{name: grpc, port: 81}]
endpoints: [{addresses: [10.0.0.1]}]
`, `web.shop.svc.cluster.local STATIC [] 80/grpc/GRPC>81
  10.0.0.1 map[] healthy 
`,
		},
		"ExternalName": {
			"kind: Service\n" + webMeta +
				"spec: {type: ExternalName, externalName: Example.com., ports: [{port: 80, name: http}]}\n",
			"web.shop.svc.cluster.local DNS [] 80/http/HTTP>0\n  example.com map[] healthy \n",
		},
		"no ports": {"kind: Service\n" + webMeta + "spec: {type: ExternalName, externalName: example.com}\n", ""},
		"two families": {
			"kind: Service\n" + webMeta + `spec:
  clusterIP: fd00::1
  clusterIPs: ["fd00::1", 10.96.0.1]
  ipFamilies: [IPv6, IPv4]
  ports: [{port: 80}]
---
` + sliceOf + `addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.1], ` + targeted + `}]
---
kind: EndpointSlice
metadata: {namespace: shop, name: web-2, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{port: 80}]
endpoints: [{addresses: ["fd01:0::1"], ` + targeted + `}]
---
kind: Pod
metadata: {namespace: shop, name: pod-1}
status: {podIP: "fd01::1", podIPs: [{ip: "fd01::1"}, {ip: 10.0.0.1}]}
`, `web.shop.svc.cluster.local STATIC [fd00::1/128 10.96.0.1/32] 80//UNKNOWN>0
  fd01::1 map[] healthy pod-1 as default
`,
		},
		"readiness": {
			"kind: Service\n" + webMeta + `spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
---
` + sliceOf + `ports: [{port: 80}]
endpoints:
- {addresses: [10.0.0.1], conditions: {ready: true}}
- {addresses: [10.0.0.2], conditions: {ready: false}}
- {addresses: [10.0.0.3], conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.0.0.4], conditions: {ready: false, serving: false, terminating: true}}
- {addresses: [10.0.0.5]}
---
kind: EndpointSlice
metadata: {namespace: shop, name: web-2, labels: {kubernetes.io/service-name: web}}
ports: [{port: 80}]
endpoints:
- {addresses: [10.0.0.2], conditions: {ready: true}}
- {addresses: [10.0.0.1], conditions: {ready: false}}
`, `web.shop.svc.cluster.local STATIC [10.96.0.1/32] 80//UNKNOWN>0
  10.0.0.1 map[] healthy 
  10.0.0.2 map[] healthy 
  10.0.0.3 map[] draining 
  10.0.0.4 map[] unhealthy 
  10.0.0.5 map[] healthy 
`,
		},
		"publishNotReadyAddresses": {
			"kind: Service\n" + webMeta + `spec: {clusterIP: 10.96.0.1, publishNotReadyAddresses: true, ports: [{port: 80}]}
---
` + sliceOf + `ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.2], conditions: {ready: false}}]
`, `web.shop.svc.cluster.local STATIC [10.96.0.1/32] 80//UNKNOWN>0
  10.0.0.2 map[] healthy 
`,
		},
		"endpoints whose Pod is not known, or has another address": {
			"kind: Service\n" + webMeta + `spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
---
` + podAt + `---
` + sliceOf + `ports: [{port: 80}]
endpoints:
- {addresses: [10.0.0.1], ` + targeted + `}
- {addresses: [10.0.0.2], ` + targeted + `}
- {addresses: [10.0.0.3], targetRef: {kind: Pod, name: pod-3}}
- {addresses: [10.0.0.4], targetRef: {kind: Node, name: n}}
- {addresses: [example.com]}
- {addresses: []}
`, `web.shop.svc.cluster.local STATIC [10.96.0.1/32] 80//UNKNOWN>0
  10.0.0.1 map[] healthy pod-1 as default
  10.0.0.4 map[] healthy 
`,
		},
		"a Pod": {
			"kind: Service\n" + webMeta + `spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
---
` + sliceOf + `ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.1], ` + targeted + `}]
---
kind: Node
metadata:
  name: node-1
  labels: {topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z, topology.istio.io/subzone: s}
---
kind: Namespace
metadata: {name: istio-system, labels: {topology.istio.io/network: net}}
---
kind: Pod
metadata:
  namespace: shop
  name: pod-1
  generateName: web-6d4-
  labels: {security.istio.io/tlsMode: istio, pod-template-hash: 6d4}
  ownerReferences: [{kind: ReplicaSet, name: web-6d4, controller: true}]
spec: {serviceAccountName: sa, nodeName: node-1}
status: {podIP: 10.0.0.1}
`, `web.shop.svc.cluster.local STATIC [10.96.0.1/32] 80//UNKNOWN>0
  10.0.0.1 map[] healthy web as sa in r/z/s on net tls istio
`,
		},
		"labels of a Pod have precedence": {
			"kind: Service\n" + webMeta + `spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
---
` + sliceOf + `ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.1], ` + targeted + `}]
---
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/region: r}}
---
kind: Namespace
metadata: {name: istio-system, labels: {topology.istio.io/network: net}}
---
kind: Pod
metadata:
  namespace: shop
  name: pod-1
  generateName: web-123456789-
  labels: {istio-locality: a.b.c, topology.istio.io/network: own, security.istio.io/tlsMode: disabled}
  ownerReferences: [{kind: Job, name: web-123456789, controller: true}]
spec: {nodeName: node-1}
status: {podIP: 10.0.0.1}
`, `web.shop.svc.cluster.local STATIC [10.96.0.1/32] 80//UNKNOWN>0
  10.0.0.1 map[] healthy web as default in a/b/c on own
`,
		},
		"annotations": {
			`kind: Service
metadata: {namespace: shop, name: web, annotations: {networking.istio.io/exportTo: "., other"}}
spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
---
kind: Service
metadata: {namespace: shop, name: near, annotations: {networking.istio.io/traffic-distribution: prefersamenode}}
spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}
---
kind: Service
metadata: {namespace: shop, name: spec, annotations: {networking.istio.io/traffic-distribution: Any}}
spec: {clusterIP: 10.96.0.2, trafficDistribution: PreferClose, ports: [{port: 80}]}
---
kind: Service
metadata: {namespace: far, name: any, annotations: {networking.istio.io/traffic-distribution: Any}}
spec: {clusterIP: 10.96.0.3, ports: [{port: 80}]}
---
kind: Service
metadata: {namespace: far, name: all}
spec: {clusterIP: 10.96.0.4, ports: [{port: 80}]}
---
kind: Namespace
metadata: {name: far, annotations: {networking.istio.io/traffic-distribution: PreferClose}}
`, `all.far.svc.cluster.local STATIC [10.96.0.4/32] 80//UNKNOWN>0 PreferSameZone
any.far.svc.cluster.local STATIC [10.96.0.3/32] 80//UNKNOWN>0
near.shop.svc.cluster.local STATIC [10.96.0.2/32] 80//UNKNOWN>0 PreferSameNode
spec.shop.svc.cluster.local STATIC [10.96.0.2/32] 80//UNKNOWN>0 PreferSameZone
web.shop.svc.cluster.local STATIC [10.96.0.1/32] 80//UNKNOWN>0 to [. other]
`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := testObjects()
			for _, object := range decode(t, tc.objects) {
				set(o, object, false)
			}
			if d := cmp.Diff(tc.want, describe(o)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// Annotations with wrong values are problems of the Service, also if nothing else of it changes.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	const export, distribution = "networking.istio.io/exportTo", "networking.istio.io/traffic-distribution"
	o, k := testObjects(), key{Namespace: "shop", Name: "web"}
	s := &syncer{objects: o}
	for _, tc := range []struct {
		annotation, value string
		want              []string
	}{
		{export, "~, x/y", []string{`Service shop/web metadata.annotations[networking.istio.io/exportTo]: "x/y" is ` +
			`ignored: want names of namespaces, * for all, . for that of the Service, or ~ for none`}},
		{export, "*,.,~,other", nil},
		{distribution, "Nope", []string{`Service shop/web metadata.annotations[networking.istio.io/traffic-distribution]: ` +
			`"Nope" is ignored: want PreferSameZone, PreferSameNode, PreferClose or Any`}},
		{distribution, "any", nil},
		{distribution, "preferclose", nil},
	} {
		web := webService()
		web.Annotations = map[string]string{tc.annotation: tc.value}
		set(o, web, false)
		changed := o.convert()
		var got []string
		for _, p := range s.update(k).Problems {
			got = append(got, p.String())
		}
		if d := cmp.Diff(tc.want, got); d != "" || !slices.Contains(changed, k) {
			t.Errorf("%s: %q: changed %v, problems (-want +got):\n%s", tc.annotation, tc.value, changed, d)
		}
	}
}

// Everything else that a Service sets.
func TestConvertService(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := webService()
	s.CreationTimestamp, s.Labels = metav1.NewTime(created), map[string]string{"a": "b"}
	s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"192.0.2.1"}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.2"}, {Hostname: "lb.example.com"}}
	s.Spec.Ports[0].TargetPort.Type, s.Spec.Ports[0].TargetPort.StrVal = 1, "web"
	o := testObjects()
	set(o, s, false)
	o.convert()
	got := o.services[key{Namespace: "shop", Name: "web"}].mesh
	want := meshService{
		instances: []registry.Instances{{
			Service: &registry.Service{
				Key:               registry.Key{Host: "web.shop.svc.cluster.local", Namespace: "shop"},
				Cluster:           "east",
				Addresses:         []netip.Prefix{netip.MustParsePrefix("10.96.0.1/32")},
				ExternalAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
				Ports:             []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP}},
				Labels:            s.Labels, Created: created, Source: "kubernetes", Object: "Service shop/web",
			},
			Endpoints: &registry.EndpointList{},
		}},
	}
	want.selector = &registry.Selector{Service: want.instances[0].Service, Labels: map[string]string{"app": "web"},
		Targets: map[string]string{"http": "web"}}
	addresses := cmp.AllowUnexported(meshService{})
	if d := cmp.Diff(want, got, addresses, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	// What does not change keeps its pointers.
	set(o, s.DeepCopy(), false)
	changed := o.convert()
	if now := o.services[key{Namespace: "shop", Name: "web"}].mesh; len(changed) > 0 || now.selector != got.selector {
		t.Errorf("an equal Service changed %v", changed)
	}
}
