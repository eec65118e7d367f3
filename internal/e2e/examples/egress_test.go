package examples

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// The partner is found by DNS; another team's service and unknown hosts are refused, until the
// Sidecar names the other team's namespace.
func TestEgress(t *testing.T) {
	t.Parallel()
	partner := harness.NewBackend(t, "partner", "127.0.0.1:0")
	_, port, _ := strings.Cut(partner.Address, ":")
	e := open(t, "egress", "targetPort: 8090", "targetPort: "+port)
	ledger := e.backend("ledger", "127.0.0.31:8080")
	p := e.proxy("web")
	through := &http.Transport{DisableKeepAlives: true,
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.IP + ":15007"})}
	want := func(what, target string, status int, answer string) {
		t.Helper()
		harness.Eventually(t, what, func() error { return answers(through, target, "", status, answer) })
	}

	want("the partner", "http://api.partner.example:8000/orders", http.StatusOK, "partner /orders")
	want("another team's service", "http://ledger.internal:8000/", http.StatusBadGateway, "")
	want("an unknown host", "http://other.example/", http.StatusBadGateway, "")
	if n := ledger.Requests(); n != 0 {
		t.Errorf("the ledger saw %d requests before the Sidecar named it", n)
	}
	if strings.Contains(p.ConfigDump(), "ledger.internal") {
		t.Error("the Envoy was sent a service that its Sidecar does not name")
	}

	text := e.read(e.folder + "/config/sidecar.yaml")
	wider := strings.Replace(text, `"partners/*"`, `"partners/*", "billing/*"`, 1)
	if wider == text {
		t.Fatal("the edit of README.md finds nothing to replace in sidecar.yaml")
	}
	e.Write("sidecar.yaml", wider)
	want("the ledger, once the Sidecar names it", "http://ledger.internal:8000/", http.StatusOK, "ledger /")
}
