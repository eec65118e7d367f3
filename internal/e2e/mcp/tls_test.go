package mcp_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ashore-mesh/ashore/internal/e2e/mcptest"
	"github.com/ashore-mesh/ashore/mcp"
)

// Only a server with a certificate of our authorities for its name is accepted; and an outage says
// what to look at.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, other := newAuthority(t, "ours"), newAuthority(t, "other")
	cert, key := ours.leaf("client", "client.test", time.Now().Add(time.Hour))
	for name, c := range map[string]struct {
		clients tls.ClientAuthType
		change  func(*mcp.Config)
		want    string
	}{
		"right":          {tls.NoClientCert, func(*mcp.Config) {}, ""},
		"mutual":         {tls.RequireAndVerifyClientCert, func(c *mcp.Config) { c.CertFile, c.KeyFile = cert, key }, ""},
		"other CA":       {tls.NoClientCert, func(c *mcp.Config) { c.CAFile = other.file }, "check caFile"},
		"the machine's":  {tls.NoClientCert, func(c *mcp.Config) { c.CAFile = "" }, "check caFile"},
		"other name":     {tls.NoClientCert, func(c *mcp.Config) { c.ServerName = "else.test" }, "check caFile"},
		"host's name":    {tls.NoClientCert, func(c *mcp.Config) { c.ServerName = "" }, "check caFile"},
		"no certificate": {tls.RequireAndVerifyClientCert, func(*mcp.Config) {}, "check certFile"},
		"no file":        {tls.NoClientCert, func(c *mcp.Config) { c.CAFile = "/nowhere/ca.pem" }, "caFile: open /nowhere/ca.pem"},
		"plaintext": {tls.NoClientCert, func(c *mcp.Config) {
			c.Plaintext, c.CAFile, c.ServerName = true, "", ""
		}, "cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &mcptest.XDS{Store: mcptest.NewStore()}
			x.Put(entries, "shop/web", entryOf("web.test"))
			at, _ := mcptest.Serve(t, "", x.Register, grpc.Creds(credentials.NewTLS(ours.server("mcp.test",
				c.clients))))
			cfg := mcp.Config{Options: mcp.Options{Address: at, CAFile: ours.file, ServerName: "mcp.test"}}
			c.change(&cfg)
			s := newSink(t, cfg)
			if c.want == "" {
				s.connected()
				return
			}
			eventually(t, "an error", func() bool { return strings.Contains(s.status().Error, c.want) })
			if s.status().Synced || x.Seen().Acks > 0 {
				t.Error("it took something all the same")
			}
		})
	}
}

// Our server sends its objects only to identities of the root namespace.
func TestServedByIdentity(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	readers := mcp.Readers{RootNamespace: "istio-system", TrustDomain: "cluster.local"}
	s := newServed(t, readers, grpc.Creds(credentials.NewTLS(ours.server("istiod.test", tls.VerifyClientCertIfGiven))))
	s.put("web", "web.test")
	for name, c := range map[string]struct{ who, namespace, want string }{
		"root namespace":  {"spiffe://cluster.local/ns/istio-system/sa/peer", "istio-system", ""},
		"other namespace": {"spiffe://cluster.local/ns/shop/sa/web", "shop", "not allowed to read"},
		"other domain":    {"spiffe://else/ns/istio-system/sa/peer", "istio-system", "not allowed to read"},
		"nobody":          {"", "istio-system", "authenti"},
		"no identity":     {"client.test", "istio-system", "authenti"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := mcp.Config{Options: mcp.Options{Address: s.address, CAFile: ours.file, ServerName: "istiod.test", Namespace: c.namespace}}
			if c.who != "" {
				cfg.CertFile, cfg.KeyFile = ours.leaf(strings.ReplaceAll(name, " ", "-"), c.who,
					time.Now().Add(time.Hour))
			}
			k := newSink(t, cfg)
			if c.want == "" {
				k.connected()
				if got := k.holds("web"); got != "web.test" {
					t.Errorf("told %q", got)
				}
				return
			}
			eventually(t, "a refusal", func() bool {
				return strings.Contains(k.status().Error, c.want) && strings.Contains(k.status().Error, "certFile")
			})
			if k.status().Synced {
				t.Error("told something all the same")
			}
		})
	}
}

// A reader's stream ends with its certificate, and a new one starts with the next certificate.
func TestServedUntilExpiry(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	s := newServed(t, mcp.Readers{RootNamespace: "istio-system", TrustDomain: "cluster.local"},
		grpc.Creds(credentials.NewTLS(ours.server("istiod.test", tls.VerifyClientCertIfGiven))))
	s.put("web", "web.test")
	who := "spiffe://cluster.local/ns/istio-system/sa/peer"
	cfg := mcp.Config{Options: mcp.Options{Address: s.address, CAFile: ours.file, ServerName: "istiod.test"}}
	cfg.CertFile, cfg.KeyFile = ours.leaf("short", who, time.Now().Add(3*time.Second))
	k := newSink(t, cfg)
	k.connected()
	eventually(t, "the end of the certificate", func() bool { return k.status().Error != "" })
	ours.leaf("short", who, time.Now().Add(time.Hour))
	eventually(t, "the return with a newer one", func() bool { return k.status().Error == "" })
	if got := k.holds("web"); got != "web.test" {
		t.Errorf("active %q", got)
	}
}
