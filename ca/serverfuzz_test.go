package ca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/internal/ratelimit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// from is a call of a client with a certificate, without a network.
func from(t testing.TB, c *tls.Certificate) context.Context {
	t.Helper()
	p := &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 13, 4), Port: 1}}
	if c != nil {
		p.AuthInfo = credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: chainOf(t, c)}}
	}
	return peer.NewContext(t.Context(), p)
}

// decoder hands a message to a method as gRPC does, and says whether it was asked for.
func decoder(wire []byte, asked *atomic.Bool) func(any) error {
	return func(m any) error {
		asked.Store(true)
		return proto.Unmarshal(wire, m.(proto.Message))
	}
}

// enroll makes a workload known without a network, and returns its certificate.
func (l *lab) enroll(name string) *tls.Certificate {
	l.t.Helper()
	c := l.certificate(l.signer, "spiffe://cluster.local/ns/shop/sa/web", noon, noon.Add(20*time.Hour), nil)
	id, err := spiffe.Of(c.Leaf)
	if err == nil {
		err = l.ledger.enter(l.t.Context(), &issuance{workload: "shop/" + name, proof: &Proof{ID: id, How: byJWT},
			ask: &ask{Request: &Request{KeyHash: keyHash(c.Leaf)}}, leaf: c.Leaf, now: noon})
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// unlimited lifts the rate limits of calls.
func (l *lab) unlimited() {
	for _, r := range []*ratelimit.Limiter{&l.server.refusedByAddress, &l.server.byCaller} {
		r.Burst = math.MaxInt32
	}
}

// Nothing that a stranger sends is read before it is proven who he is.
func TestStrangersAreNotRead(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	var asked atomic.Bool
	_, err := l.server.call(from(t, nil), l.server.attest, l.server.answer, decoder(nil, &asked))
	if err := wantRefused(err, codes.Unauthenticated, publicNobody); err != nil {
		t.Error(err)
	}
	if asked.Load() {
		t.Error("the request was read")
	}
}

// Whatever a proven caller sends: no panic, and what it gets is a certificate for its own identity
// and the key it showed.
func FuzzCreateCertificate(f *testing.F) {
	l := newLab(f, nil)
	l.unlimited()
	key := NewKey()
	for _, c := range []client{{key: key}, {key: key, name: "a"},
		{key: key, more: map[string]string{"CertSigner": "x"}}, {csr: []byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----")}} {
		wire, err := proto.Marshal(l.request(c))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	cert := l.enroll("a")
	id, err := spiffe.Of(cert.Leaf)
	if err != nil {
		f.Fatal(err)
	}
	first, err := l.store.Get(f.Context(), record.Key{Table: "workload", Name: "shop/a"})
	if err != nil {
		f.Fatal(err)
	}
	var n atomic.Uint64
	f.Fuzz(func(t *testing.T, wire []byte) {
		if n.Add(1)%100 == 0 { // its record is full after maxLeaves
			if err := l.store.Commit(t.Context(), record.Write{Key: first.Key, Value: first.Value,
				Version: record.Any}); err != nil {
				t.Fatal(err)
			}
		}
		var asked atomic.Bool
		answer, err := l.server.call(from(t, cert), l.server.attest, l.server.answer, decoder(wire, &asked))
		if err != nil {
			if _, ok := status.FromError(err); !ok {
				t.Fatalf("not a status: %v", err)
			}
			return
		}
		chain := answer
		leaf, err := DecodeCertificates([]byte(chain[0]))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := spiffe.Of(leaf[0]); err != nil || got != id || len(leaf[0].DNSNames) > 0 {
			t.Fatalf("got a certificate of %v, error %v", got, err)
		}
	})
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The whole handling of a renewal, beside what it cannot do without: reading the request, checking
// its signature, and signing; and beside that with verifying the client's chain too.
func BenchmarkCreateCertificate(b *testing.B) {
	const workloads = 2048 // enough that their records stay as small as they are in life
	l := newLab(b, func(c *ServerConfig) { c.Log, c.Audit = nil, nil })
	l.unlimited()
	var calls []context.Context
	var chains [][]*x509.Certificate
	var wires, requests [][]byte
	for i := range workloads {
		cert := l.enroll(fmt.Sprint("w", i))
		r := l.request(client{key: NewKey()})
		wire, err := proto.Marshal(r)
		if err != nil {
			b.Fatal(err)
		}
		calls, chains, wires, requests = append(calls, from(b, cert)), append(chains, chainOf(b, cert)), append(wires,
			wire), append(requests, []byte(r.GetCsr()))
	}
	id := web(b)
	alone := func(i int) error {
		r, err := ParseRequest(requests[i])
		if err == nil {
			_, err = Issue(l.signer, Grant{ID: id, Key: r.Key}, noon)
		}
		return err
	}
	parallel := func(name string, one func(i int) error) {
		b.Run(name, func(b *testing.B) {
			var next atomic.Uint64
			begin := processorTime(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := one(int(next.Add(1) % workloads)); err != nil {
						b.Error(err)
						return
					}
				}
			})
			// what others do on the machine does not count
			b.ReportMetric(float64(processorTime(b)-begin)/float64(b.N), "cpu-ns/op")
		})
	}
	parallel("alone", alone)
	parallel("alone, client verified", func(i int) error {
		if _, err := l.peers.Verify(chains[i], noon); err != nil {
			return err
		}
		return alone(i)
	})
	parallel("handler", func(i int) error {
		var asked atomic.Bool
		_, err := l.server.call(calls[i], l.server.attest, l.server.answer, decoder(wires[i], &asked))
		return err
	})
}
