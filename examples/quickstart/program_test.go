package main

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/goldentest"
)

// The proxies in golden/ are those that this program starts.
func TestProxies(t *testing.T) {
	t.Parallel()
	var want []goldentest.Proxy
	for _, w := range workloads() {
		p := goldentest.Proxy{Name: w.name, Namespace: "quickstart", Group: w.name, Identity: true,
			Addresses: []string{"127.0.0." + w.host}, Interception: "NONE"}
		if w.proxy {
			port, err := strconv.ParseUint(portProxy, 10, 16)
			if err != nil {
				t.Fatal(err)
			}
			p.HTTPProxyPort = uint32(port)
		}
		want = append(want, p)
	}
	if d := cmp.Diff(want, goldentest.Proxies(t, "proxies.yaml")); d != "" {
		t.Errorf("proxies.yaml (-program +file):\n%s", d)
	}
}
