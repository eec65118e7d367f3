package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// readerOf is a control plane that reads kinds, under two names each.
func readerOf(id string, connected time.Time, kinds ...admin.TypeStatus) admin.ProxyStatus {
	p := admin.ProxyStatus{ID: id, Kind: "sidecar", Namespace: "istio-system", Reader: true, Peer: "10.0.0.9:4",
		Connected: connected}
	for _, k := range kinds {
		for _, version := range []string{"v1", "v1alpha3"} {
			k.Type = "networking.istio.io/" + version + "/" + k.Objects
			p.Types = append(p.Types, k)
		}
	}
	return p
}

// A reader of configuration has a row of its own kind, which is no wider for its thirty types, and
// what it refuses is told once, by its kind; proxies are shown as without it.
func TestReaders(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	good := func(kind string, n int) admin.TypeStatus {
		return admin.TypeStatus{Objects: kind, Resources: n, Latest: true}
	}
	refused := admin.TypeStatus{Objects: "ServiceEntry", Resources: 9, Latest: true,
		Rejected: []admin.Rejection{{Time: now.Add(-5 * time.Second), Resource: "shop/web", Error: "hosts: missing"}}}
	proxy := admin.ProxyStatus{ID: "web-1.shop", Kind: "sidecar", Peer: "10.0.0.1:4", Agent: "v0.3.0", Envoy: "1.40.0",
		Connected: now.Add(-time.Hour), Types: []admin.TypeStatus{{Type: "cds", Resources: 3, Latest: true}}}
	mixed := proxy
	mixed.Types = []admin.TypeStatus{{Type: "cds", Resources: 3},
		{Type: "networking.istio.io/v1/Gateway", Objects: "Gateway", Resources: 2, InFlight: 1}}
	const proxies = "PROXY       KIND     PEER        CONNECTED  AGENT   ENVOY   CDS\n" +
		"web-1.shop  sidecar  10.0.0.1:4  1h         v0.3.0  1.40.0  3\n"
	for name, tc := range map[string]struct {
		all  []admin.ProxyStatus
		want string
	}{
		"none":   {[]admin.ProxyStatus{proxy}, proxies},
		"nobody": {nil, "no proxy is connected\n"},
		"alone": {[]admin.ProxyStatus{readerOf("istiod-0.istio-system", now.Add(-time.Minute), good("Gateway", 2), good("ServiceEntry", 9))},
			"no proxy is connected\n\nREADER                 PEER        CONNECTED  KINDS  OBJECTS  STATE    REFUSED\n" +
				"istiod-0.istio-system  10.0.0.9:4  1m         2      11       in step  -\n"},
		"asked for nothing yet": {[]admin.ProxyStatus{proxy, readerOf("10.0.0.9:4", now)},
			proxies + "\nREADER      PEER        CONNECTED  KINDS  OBJECTS  STATE    REFUSED\n10.0.0.9:4  10.0.0.9:4  0s         0      0        in step  -\n"},
		"some": {[]admin.ProxyStatus{
			readerOf("a", now, good("Gateway", 2), admin.TypeStatus{Objects: "Sidecar", Resources: 1, InFlight: 1},
				admin.TypeStatus{Objects: "ServiceEntry", Resources: 9}),
			readerOf("b", now, admin.TypeStatus{Objects: "Sidecar"}, admin.TypeStatus{Objects: "Gateway"},
				admin.TypeStatus{Objects: "Telemetry"}, admin.TypeStatus{Objects: "ServiceEntry"}),
			readerOf("c", now, refused), proxy},
			proxies + "\nREADER  PEER        CONNECTED  KINDS  OBJECTS  STATE                                     REFUSED\n" +
				"a       10.0.0.9:4  0s         3      12       sent: Sidecar; behind: ServiceEntry       -\n" +
				"b       10.0.0.9:4  0s         4      0        behind: Gateway, ServiceEntry and 2 more  -\n" +
				"c       10.0.0.9:4  0s         1      9        in step                                   1\n" +
				"\nc rejected ServiceEntry shop/web 5s ago:\n  hosts: missing\n"},
		"both": {[]admin.ProxyStatus{mixed}, strings.Replace(proxies, "1.40.0  3", "1.40.0  3 behind", 1) +
			"\nREADER      PEER        CONNECTED  KINDS  OBJECTS  STATE          REFUSED\nweb-1.shop  10.0.0.1:4  1h         1      2        sent: Gateway  -\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := statusText(&out, admin.Status{Proxies: tc.all}, now); err != nil {
				t.Fatal(err)
			}
			_, got, _ := strings.Cut(out.String(), "\n\n")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// By itself a reader is shown type by type, and not as a proxy of the namespace that it claims.
func TestOneReader(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var out strings.Builder
	if err := proxyTable(&out, readerOf("istiod-0.istio-system", now.Add(-time.Minute),
		admin.TypeStatus{Objects: "Gateway", Resources: 2, Latest: true}), now); err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(out.String(), "\n")
	if want := "istiod-0.istio-system: reader of configuration at 10.0.0.9:4, connected since "; !strings.HasPrefix(first, want) || strings.Contains(first, "sidecar") {
		t.Errorf("got %q, want %q", first, want)
	}
	for _, want := range []string{"\nnetworking.istio.io/v1/Gateway ", "\nnetworking.istio.io/v1alpha3/Gateway "} {
		if !strings.Contains(rest, want) {
			t.Errorf("no %q in %s", want, rest)
		}
	}
}

// Who a proxy proved to be stands in its status, and that it proved nothing too.
func TestProxyIdentity(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		p    admin.ProxyStatus
		want string
	}{
		"proven": {admin.ProxyStatus{Identity: "spiffe://cluster.local/ns/shop/sa/web", Serial: "7dfc", Expires: now.Add(5 * time.Hour), Bundle: "0123456789"},
			"spiffe://cluster.local/ns/shop/sa/web, certificate 7dfc until " + now.Add(5*time.Hour).Local().Format(time.DateTime) + " (5h left), trusts roots 0123456\n\n"},
		"nobody": {admin.ProxyStatus{}, "no identity: it is connected without TLS\n\n"},
	} {
		var out strings.Builder
		if err := proven(&out, tc.p, now); err != nil || out.String() != tc.want {
			t.Errorf("%s: got %q, %v; want %q", name, out.String(), err, tc.want)
		}
	}
}
