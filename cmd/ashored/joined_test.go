package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"testing"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/xds"
)

// apart are records that may be out of touch with what other replicas write.
type apart struct {
	record.Store
	why error
}

func (a *apart) Behind() error { return a.why }

// A workload that is not known to a replica out of touch is not said to have lost its place:
// another replica may have let it join.
func TestJoinedOutOfTouch(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		URIs: []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/shop/sa/web"}}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s := &apart{Store: record.NewMemory()}
	id := &identity{}
	if id.ledger, err = ca.NewLedger(t.Context(), ca.LedgerConfig{Records: s,
		TrustDomain: "cluster.local"}); err != nil {
		t.Fatal(err)
	}
	out := func(ctx context.Context) bool {
		_, err := id.joined(ctx, leaf)
		if err == nil {
			t.Error("it is known")
		}
		_, not := errors.AsType[*xds.NotJoinedError](err)
		return not
	}
	if !out(t.Context()) {
		t.Error("in touch: it is not said that it did not join here")
	}
	s.why = errors.New("Consul does not answer")
	if out(t.Context()) {
		t.Error("out of touch: it is said that it did not join here")
	}
}
