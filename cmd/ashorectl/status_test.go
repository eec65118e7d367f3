package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// readerOf is a control plane that reads kinds, under two names each.
func readerOf(id string, connected time.Time, kinds ...admin.TypeStatus) admin.ProxyStatus {
	p := admin.ProxyStatus{ID: id, Kind: admin.Reader, Namespace: "istio-system", Peer: "10.0.0.9:4",
		Connected: connected}
	for _, k := range kinds {
		for _, version := range []string{"v1", "v1alpha3"} {
			k.Type = "networking.istio.io/" + version + "/" + k.Objects
			p.Types = append(p.Types, k)
		}
	}
	return p
}

// A reader of configuration has a row too, and what it rejects is shown once.
func TestReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testReaders) // the clock stands still
}

func testReaders(t *testing.T) {
	now := time.Now()
	refused := admin.TypeStatus{Objects: "ServiceEntry", Resources: 9, Latest: true,
		Rejected: []admin.Rejection{{Time: now.Add(-5 * time.Second), Resource: "shop/web", Error: "hosts: missing"}}}
	proxy := admin.ProxyStatus{ID: "web-1.shop", Kind: "sidecar", Peer: "10.0.0.1:4", Agent: "v0.3.0", Envoy: "1.40.0",
		Connected: now.Add(-time.Hour), Types: []admin.TypeStatus{{Type: "cds", Resources: 3, State: "SYNCED"}}}
	const proxies = "NAME        KIND     CDS     PEER        CONNECTED  AGENT   ENVOY\n" +
		"web-1.shop  sidecar  SYNCED  10.0.0.1:4  1h         v0.3.0  1.40.0\n"
	for name, tc := range map[string]struct {
		all  []admin.ProxyStatus
		want string
	}{
		"none":   {[]admin.ProxyStatus{proxy}, proxies},
		"nobody": {nil, "no proxy is connected\n"},
		"a rejection": {[]admin.ProxyStatus{proxy, readerOf("c", now, refused)},
			proxies + "c           reader   -       10.0.0.9:4  0s         -       -\n" +
				"\nc rejected ServiceEntry shop/web 5s ago:\n  hosts: missing\n"},
	} {
		if diff := cmp.Diff(tc.want, proxiesText(tc.all)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// The text of one proxy has its identity, and one of a reader all its types.
func TestProxyText(t *testing.T) {
	t.Parallel()
	expires := time.Now().Add(5*time.Hour + time.Minute)
	for name, tc := range map[string]struct {
		p    admin.ProxyStatus
		want []string
	}{
		"identity": {admin.ProxyStatus{Identity: "spiffe://cluster.local/ns/shop/sa/web", Serial: "7dfc", Expires: expires, Bundle: "0123456789"},
			[]string{"spiffe://cluster.local/ns/shop/sa/web, certificate 7dfc until " + local(expires) + " (in 5h), trusts roots 0123456\n"}},
		"no identity": {admin.ProxyStatus{}, []string{"no identity: it is connected without TLS\n"}},
		"reader": {readerOf("istiod-0.istio-system", time.Now(), admin.TypeStatus{Objects: "Gateway", Resources: 2, Latest: true}),
			[]string{"istiod-0.istio-system: reader of configuration at 10.0.0.9:4, connected since ",
				"\nnetworking.istio.io/v1/Gateway ", "\nnetworking.istio.io/v1alpha3/Gateway "}},
	} {
		got := proxyText(tc.p)
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in %s", name, want, got)
			}
		}
	}
}

// Of a long message its beginning and the reason at its end are shown.
func TestShorten(t *testing.T) {
	t.Parallel()
	const begin = "Error adding/updating listener(s) 0.0.0.0_80: "
	resource := "route_config {\n" + strings.Repeat("  name: \"a (b)\"\n", 300) + "}\n"
	for name, tc := range map[string]struct{ in, want string }{
		"short":         {"unknown cluster\nin a route", "unknown cluster\n  in a route"},
		"reason last":   {begin + "goo.gle/debugstr\n" + resource + ": caused by field: is required", begin + "goo.gle/debugstr … : caused by field: is required\n"},
		"reason first":  {begin + "failed (A: too short): {\n" + resource, begin + "failed (A: too short): { … }\n"},
		"one long line": {begin + strings.Repeat("ü", 500) + "(why)", "(why)\n"},
	} {
		if got := shorten(tc.in, "web-1.shop"); !strings.Contains(got, tc.want) && got != tc.want || len(got) > 1000 ||
			!utf8.ValidString(got) {
			t.Errorf("%s: got %q, want %q in it", name, got, tc.want)
		}
	}
}

// While an Envoy takes over from another, the newer one is shown.
func TestNewestProxy(t *testing.T) {
	t.Parallel()
	const node = "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local"
	at := time.Now()
	all := []admin.ProxyStatus{{ID: node, Node: node, Connected: at},
		{ID: node, Node: node, Connected: at.Add(time.Second)},
		{ID: node, Node: node, Connected: at.Add(-time.Second)}, {ID: "api-1.shop", Node: "x"}}
	for id, want := range map[string]int{"web-1.shop": 1, node: 1, "api-1.shop": 3} {
		if got, err := newestProxy(all, id); err != nil || !got.Connected.Equal(all[want].Connected) {
			t.Errorf("%s: %v, %v, want number %d", id, got, err, want)
		}
	}
	if _, err := newestProxy(all, "web-2.shop"); err == nil {
		t.Error("a proxy that is not connected was found")
	}
}
