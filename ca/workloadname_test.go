package ca

import (
	"testing"
)

// Each certificate of a workload names it, whatever key it renews with.
func TestCertificateNamesWorkload(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	cert := l.join("shop/web", "web-1")
	for range 3 {
		if got := WorkloadName(cert.Leaf); got != "shop/web-1" {
			t.Fatalf("the certificate names %q, want shop/web-1", got)
		}
		renewed, _, err := l.ask(client{cert: cert})
		if err != nil {
			t.Fatal(err)
		}
		if sameKey(renewed.Leaf.PublicKey, cert.Leaf.PublicKey) {
			t.Fatal("it was renewed with the same key")
		}
		cert = renewed
	}
	if got := WorkloadName(l.join("shop/web", "web-2").Leaf); got != "shop/web-2" {
		t.Errorf("another workload's certificate names %q", got)
	}
	foreign := l.certificateFor(NewKey(), "spiffe://cluster.local/ns/shop/sa/web")
	if got := WorkloadName(foreign.Leaf); got != "" {
		t.Errorf("a certificate that names no workload names %q", got)
	}
}
