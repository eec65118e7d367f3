package examples

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Two hosts by HTTP and HTTPS, a redirect, and a path that another service answers.
func TestGateway(t *testing.T) {
	t.Parallel()
	ca, dir := harness.NewCA(t), t.TempDir()
	cert, key := ca.Issue(t, "shop.example.com")
	for name, data := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := open(t, "gateway", "/tmp/ashore-gateway/", dir+"/")
	e.backend("shop", "127.0.0.11:8080")
	e.backend("docs", "127.0.0.12:8080")
	p := e.proxy("gateway")

	plain := p.Client(8080)
	plain.Want(t, "the docs by HTTP", harness.Request{Host: "docs.example.com", Path: "/guide"}, harness.From("docs"))
	plain.Want(t, "the shop's HTTP is redirected", harness.Request{Host: "shop.example.com", Path: "/cart"},
		func(a harness.Answer) error {
			if got := a.Header.Get("Location"); a.Status != http.StatusMovedPermanently ||
				got != "https://shop.example.com/cart" {
				return fmt.Errorf("got %d to %q, want 301 to https://shop.example.com/cart", a.Status, got)
			}
			return nil
		})
	plain.Want(t, "a host of no server", harness.Request{Host: "other.example.com"},
		harness.Status(http.StatusNotFound))

	shop := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool,
		ServerName: "shop.example.com"}}
	for path, want := range map[string]string{"/cart": "shop /cart", "/help/returns": "docs /returns"} {
		harness.Eventually(t, "https://shop.example.com"+path, func() error {
			return answers(shop, "https://"+p.IP+":8443"+path, "shop.example.com", http.StatusOK, want)
		})
	}
}
