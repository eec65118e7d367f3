package peername

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/dnsname"
)

// The labels of a workload decide in Istio's order.
func TestOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		labels map[string]string
		want   Name
	}{
		"no labels": {nil, Name{"web-vm", "web-vm", "latest", "prod"}},
		"usual":     {map[string]string{"app": "web", "version": "v1"}, Name{"web-vm", "web", "v1", "prod"}},
		"Kubernetes": {map[string]string{"app": "web", "version": "v1", "app.kubernetes.io/name": "shop",
			"app.kubernetes.io/version": "2"}, Name{"web-vm", "shop", "2", "prod"}},
		"Istio": {map[string]string{"app.kubernetes.io/name": "shop", "service.istio.io/canonical-name": "front",
			"service.istio.io/canonical-revision": "r3", "service.istio.io/workload-name": "front-vm"},
			Name{"front-vm", "front", "r3", "prod"}},
	} {
		if got := Of(tc.labels, "web-vm", "prod"); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

// Only hosts of the mesh's own domain have a short name.
func TestServiceOf(t *testing.T) {
	t.Parallel()
	for host, want := range map[string][2]string{
		"web.shop.svc.cluster.local": {"web", "shop"},
		"web.shop.svc":               {"web.shop.svc", ""},
		"web.shop.cluster.local":     {"web.shop.cluster.local", ""},
		"web.test":                   {"web.test", ""},
		"":                           {"", ""},
	} {
		if name, namespace := ServiceOf(host); [2]string{name, namespace} != want {
			t.Errorf("%s: got %q in %q, want %q", host, name, namespace, want)
		}
	}
}

// Ordinary names stay readable. No value can be made to look like several.
func TestDNS(t *testing.T) {
	t.Parallel()
	for want, n := range map[string]Name{
		"w--web-v1.a--web.v--v1.c--c1.peer.ashore":                      {"web-v1", "web", "v1", "c1"},
		"w--web.a--web.v--1--2e2--5f--41.c--c1.peer.ashore":             {"web", "web", "1.2_A", "c1"},
		"w--a--2d-b.a--a--2d.v----2d--2d.c--c--2e.peer.ashore":          {"a--b", "a-", "--", "c."},
		"w--" + strings.Repeat("a", 56) + ".a--b.v--c.c--d.peer.ashore": {strings.Repeat("a", 80), "b", "c", "d"},
	} {
		if got := n.DNS(); got != want {
			t.Errorf("%+v: got %s, want %s", n, got, want)
		}
	}
}

// Of several names of a certificate the one that is meant for metrics counts. Others are none.
func TestParse(t *testing.T) {
	t.Parallel()
	const good = "w--web.a--web.v--v1.c--c1.peer.ashore"
	want := Name{"web", "web", "v1", "c1"}
	if got, ok := Parse("web.example.com," + good + ",mail.example.com"); !ok || got != want {
		t.Errorf("got %+v %v, want %+v", got, ok, want)
	}
	for _, bad := range []string{"", "-", "web.example.com", good + ".example.com", "x." + good,
		"w--web.a--web.v--v1.peer.ashore", "w--.a--web.v--v1.c--c1.peer.ashore", "w--w--.a--web.v--v1.c--c1.peer.ashore",
		"w--w--a.a--web.v--v1.c--c1.peer.ashore", "w--w--zz.a--web.v--v1.c--c1.peer.ashore",
		"w--WEB.a--web.v--v1.c--c1.peer.ashore"} {
		if got, ok := Parse(bad); ok {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

// Every name is a DNS name and is read as it was written, as long as it was not cut.
func FuzzName(f *testing.F) {
	f.Add("web-v1", "web", "1.2", "c1")
	f.Add("web-v1", "web", "v--1", "c1")
	f.Add("--", "a--b.c", "\x00,", "peer.ashore")
	f.Fuzz(func(t *testing.T, w, a, v, c string) {
		n := Name{w, a, v, c}
		dns := n.DNS()
		if !dnsname.Valid(dns) {
			t.Fatalf("%+v is %q, which is not a DNS name", n, dns)
		}
		got, ok := Parse(dns)
		cut := len(encode(w))+4 > maxValue || len(encode(a))+4 > maxValue || len(encode(v))+4 > maxValue ||
			len(encode(c))+4 > maxValue
		if empty := w == "" || a == "" || v == "" || c == ""; !ok || got != n && !cut && !empty {
			t.Errorf("%+v is %q, read as %+v %v", n, dns, got, ok)
		}
		_, _ = Parse(w + "," + a) // any text
		if text := decode(v); text != "" && encode(text) != v {
			t.Errorf("%q is decoded as %q", v, text)
		}
	})
}
