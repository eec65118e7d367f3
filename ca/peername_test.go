package ca

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/peername"
	"github.com/ashore-mesh/ashore/internal/record"
)

// The certificate of a workload that joined a group has the group's name for metrics, whatever its
// request asks for, and authenticates. After a loss of the index it keeps the name.
func TestPeerName(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	for _, version := range []string{"v1", "v2"} {
		names[version] = peername.Name{Workload: "web", Service: "shop", Revision: version, Cluster: "c1"}.DNS()
	}
	version := "v1"
	l := newLab(t, func(c *ServerConfig) {
		c.PeerName = func(group string) string {
			if group == "shop/web" {
				return names[version]
			}
			return ""
		}
	})
	l.serve()
	want := func(what string, leaf *x509.Certificate, dns ...string) {
		t.Helper()
		if !slices.Equal(leaf.DNSNames, dns) {
			t.Errorf("%s: got %q, want %q", what, leaf.DNSNames, dns)
		}
	}
	cert := l.join("shop/web", "a")
	want("after joining", cert.Leaf, names["v1"])
	version = "v2"
	cert, _, err := l.ask(client{cert: cert})
	if err != nil {
		t.Fatal(err)
	}
	want("with new labels of the group", cert.Leaf, names["v2"])
	if err := l.store.Commit(t.Context(), record.Write{Key: record.Key{Table: "workload", Name: "shop/a"},
		Version: record.Any}); err != nil {
		t.Fatal(err)
	}
	version = "v1"
	l.pass(time.Minute)
	if cert, _, err = l.ask(client{cert: cert}); err != nil {
		t.Fatal(err)
	}
	want("after a loss of the index", cert.Leaf, names["v2"])
	want("of a group without a name", l.join("shop/api", "b").Leaf)
}

// An authority that may not sign DNS names signs certificates without one.
func TestPeerNameBelowConstraints(t *testing.T) {
	t.Parallel()
	root, key := testRoot(t), NewKey()
	template := newAuthority("constrained", time.Hour, noon)
	template.PermittedDNSDomains = []string{"corp.example"}
	cert, err := createCertificate(template, root.Cert, key.Public(), root.Key)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(cert, key, nil, NewBundle(root.Cert), noon)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := Issue(s, Grant{ID: web(t), PeerName: peername.Name{}.DNS(), Key: NewKey().Public()}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := NewBundle(root.Cert).verify(append([]*x509.Certificate{leaf}, s.Intermediates...),
		x509.ExtKeyUsageClientAuth, noon); err != nil || len(leaf.DNSNames) > 0 {
		t.Errorf("it has %q, and peers say: %v", leaf.DNSNames, err)
	}
}
