package consul

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// answered records the requests that a proxy forwards to Consul, except for the regular ones.
type answered struct {
	mu    sync.Mutex
	paths []string // guarded by mu
}

func (a *answered) take(r *http.Response) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !strings.HasPrefix(r.Request.URL.Path, "/v1/catalog/node/") { // a request every 20 seconds
		a.paths = append(a.paths, r.Request.URL.Path)
	}
	return nil
}

// since are the paths of the answers after the first n, and how many there are in all.
func (a *answered) since(n int) ([]string, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.paths[n:]), len(a.paths)
}

// Of a thousand services, the flap of one is one answer about that one.
func TestCostFollowsChanges(t *testing.T) {
	t.Parallel()
	const services = 1000
	a := testconsul.Start(t, map[string]any{"limits": map[string]any{"http_max_conns_per_client": 2 * services}})
	c := newCatalog(t, a, "")
	c.many(services, 2)
	var seen answered
	transport := &http.Transport{MaxIdleConnsPerHost: services}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: a.Address}) },
		ModifyResponse: seen.take, Transport: transport,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}, // the client is gone
	})
	proxy.EnableHTTP2 = true
	proxy.StartTLS()
	t.Cleanup(proxy.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	v := follow(t, consul.Options{Address: proxy.URL, TLS: consul.TLSOptions{CAFile: ca}})
	v.synced(t)
	quiet := func() int { // until all wait
		t.Helper()
		_, before := seen.since(0)
		for {
			time.Sleep(time.Second)
			_, now := seen.since(0)
			if now == before {
				return now
			}
			before = now
		}
	}
	before := quiet()
	c.flap("svc7-0", "node-14", "critical")
	v.until(t, "the flap", func() bool {
		return slices.ContainsFunc(v.endpoints("svc7.service.consul"),
			func(ep string) bool { return strings.HasSuffix(ep, "unhealthy") })
	})
	quiet()
	if paths, _ := seen.since(before); !slices.Equal(paths, []string{"/v1/health/service/svc7"}) {
		t.Errorf("one flap was answered by %q", fmt.Sprint(paths))
	}
}
