package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds"
)

// Who has the token gets this replica and each agent once, with labels. Proxies without an agent have
// no metrics to scrape.
func TestTargets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := func(id, address string) push.Node {
		return push.Node{ID: id, Namespace: "shop", ServiceAccount: "web", Network: "n1", Locality: registry.Locality{Region: "r", Zone: "z"},
			IPs: new(intern.Lists[netip.Addr]).Of([]netip.Addr{netip.MustParseAddr(address)})}
	}
	d := &discovery{tokenFile: file, cluster: "c1", log: testlog.New(t), proxies: func() []xds.ProxyStatus {
		web := xds.ProxyStatus{ID: "sidecar~fd00::1~web-1.shop~x", Node: node("web-1.shop", "fd00::1"), Agent: "v1", Group: "web"}
		return []xds.ProxyStatus{{ID: "router~10.0.0.1~gw.shop~x", Node: node("gw.shop", "10.0.0.1"), Agent: "v1"},
			{ID: "sidecar~10.0.0.3~foreign.shop~x", Node: node("foreign.shop", "10.0.0.3")}, web, web}
	}}
	ask := func(token string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "http://cp.example:15014/prometheus/targets", nil)
		r.Header.Set("Authorization", token)
		d.ServeHTTP(rec, r)
		return rec
	}
	for _, token := range []string{"", "Bearer ", "Bearer other", "Bearer secret2"} {
		if rec := ask(token); rec.Code != http.StatusUnauthorized || strings.Contains(rec.Body.String(), "shop") {
			t.Errorf("with %q: %d %s", token, rec.Code, rec.Body)
		}
	}
	rec := ask("Bearer secret")
	var got []targetGroup
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, rec.Body)
	}
	agent := func(address, proxy, workload, group string) targetGroup {
		return targetGroup{[]string{address}, map[string]string{"__meta_ashore_kind": "agent", "__meta_ashore_cluster": "c1", "__meta_ashore_proxy": proxy,
			"__meta_ashore_namespace": "shop", "__meta_ashore_workload": workload, "__meta_ashore_group": group,
			"__meta_ashore_service_account": "web", "__meta_ashore_locality": "r/z", "__meta_ashore_network": "n1"}}
	}
	want := []targetGroup{{[]string{"cp.example:15014"}, map[string]string{"__meta_ashore_kind": "ashored", "__meta_ashore_cluster": "c1"}},
		agent("10.0.0.1:15020", "gw.shop", "gw", ""), agent("[fd00::1]:15020", "web-1.shop", "web", "web")}
	if diff := cmp.Diff(want, got); diff != "" || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("content type %s, (-want +got):\n%s", rec.Header().Get("Content-Type"), diff)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if rec := ask("Bearer "); rec.Code != http.StatusInternalServerError {
		t.Errorf("with an empty token: %d %s", rec.Code, rec.Body)
	}
}

// An agent that disconnected stays a target for 15 minutes, so that alerts see that it does not answer.
func TestTargetsOfDisconnectedAgents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var connected []xds.ProxyStatus
		d := &discovery{proxies: func() []xds.ProxyStatus { return connected }}
		proxy := func(id, address string) xds.ProxyStatus {
			ips := new(intern.Lists[netip.Addr]).Of([]netip.Addr{netip.MustParseAddr(address)})
			return xds.ProxyStatus{ID: id, Node: push.Node{ID: id, IPs: ips}, Agent: "v1"}
		}
		check := func(when string, want ...string) {
			t.Helper()
			var got []string
			for _, g := range d.targets("self")[1:] {
				got = append(got, g.Labels["__meta_ashore_proxy"])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		api, web := proxy("api.shop", "10.0.0.1"), proxy("web.shop", "10.0.0.2")
		connected = []xds.ProxyStatus{api, web}
		check("both connected", "api.shop", "web.shop")
		connected = []xds.ProxyStatus{web}
		time.Sleep(8 * time.Minute)
		check("one disconnected", "web.shop", "api.shop")
		time.Sleep(6 * time.Minute)
		check("after 14 minutes", "web.shop", "api.shop")
		time.Sleep(time.Minute)
		check("after 15 minutes", "web.shop")
		connected = []xds.ProxyStatus{proxy("new.shop", "10.0.0.2")}
		check("another workload at its address", "new.shop")
		connected = nil
		for i := range maxDisconnected {
			address := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String()
			connected = append(connected, proxy(address, address))
		}
		d.targets("self")
		connected = nil
		if n := len(d.targets("self")) - 1; n != maxDisconnected {
			t.Errorf("%d disconnected agents are targets, want %d", n, maxDisconnected)
		}
	})
}

// Each reason exists from the start.
func TestCountTriggers(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	count := countTriggers(reg)
	count(push.Changes{Objects: 3, Endpoints: 1})
	count(push.Changes{Endpoints: 2})
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, want := range []string{`{type="config"} 1`, `{type="endpoint"} 2`, `{type="global"} 0`, `{type="secret"} 0`, `{type="service"} 0`} {
		if !strings.Contains(rec.Body.String(), "pilot_push_triggers"+want+"\n") {
			t.Errorf("no %s in\n%s", want, rec.Body)
		}
	}
}
