package mcp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
)

// sinkHost is this test's part of the loopback network.
const sinkHost = "127.0.46.1"

// parties are an authority and what it signs, in a folder.
type parties struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newParties(t *testing.T) *parties {
	t.Helper()
	p := &parties{t: t, dir: t.TempDir()}
	p.cert, p.key = p.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)})
	return p
}

// file is where a part of a party is.
func (p *parties) file(name string) string { return filepath.Join(p.dir, name) }

// sign makes NAME.pem and NAME-key.pem.
func (p *parties) sign(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.DNSNames = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), []string{name}
	parent, by := p.cert, p.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		p.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + "-key.pem": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(p.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		p.t.Fatal(err)
	}
	return cert, key
}

// listening runs a sink that lets the party "peer" call, until the test ends, and returns its address.
func (p *parties) listening() string {
	p.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(sinkHost, "0"))
	if err != nil {
		p.t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.sign("sink", &x509.Certificate{NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	s, err := New(Config{Name: "test", Protocol: ResourceSink, Address: address, CAFile: p.file("ca.pem"), CertFile: p.file("sink.pem"), KeyFile: p.file("sink-key.pem"),
		Peers: []string{"peer"}, Log: testlog.New(p.t)})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, done := make(chan feed.Batch[*config.Object]), make(chan error, 1)
	go func() { done <- s.Run(ctx, out) }()
	go func() {
		for {
			select {
			case <-out:
			case <-ctx.Done():
				return
			}
		}
	}()
	p.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	})
	return address
}

// call opens a stream as the party "peer" and waits for the first request.
func (p *parties) call(address string) legacypb.ResourceSink_EstablishResourceStreamClient {
	p.t.Helper()
	pair, err := tls.LoadX509KeyPair(p.file("peer.pem"), p.file("peer-key.pem"))
	if err != nil {
		p.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(p.cert)
	creds := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "sink", Certificates: []tls.Certificate{pair}})
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	p.t.Cleanup(cancel)
	st, err := legacypb.NewResourceSinkClient(conn).EstablishResourceStream(ctx, grpc.WaitForReady(true))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := st.Send(&legacypb.Resources{Collection: triggerCollection}); err != nil {
		p.t.Fatal(err)
	}
	if _, err := st.Recv(); err != nil {
		p.t.Fatal(err)
	}
	return st
}

// A caller is sent away when its certificate ends, although it is connected.
func TestSinkCallerExpires(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	address := p.listening()
	p.sign("peer", &x509.Certificate{NotAfter: time.Now().Add(6 * time.Second), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	st := p.call(address)
	for {
		if _, err := st.Recv(); err != nil {
			if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "has expired") {
				t.Errorf("ended with %v", err)
			}
			return
		}
	}
}

// Strangers who connect and say nothing keep no peer out, and cut none off.
func TestSinkStrangers(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	address := p.listening()
	p.sign("peer", &x509.Certificate{NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	st := p.call(address)
	var open []net.Conn
	for range 2 * maxStrangers {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		open = append(open, c)
	}
	for _, c := range open[:maxStrangers] { // the oldest ones are cut off
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); os.IsTimeout(err) {
			t.Fatal("a stranger is still there")
		}
	}
	for range 2 { // the trigger is refused again: the stream is alive
		if err := st.Send(&legacypb.Resources{Collection: triggerCollection}); err != nil {
			t.Fatal(err)
		}
		for {
			r, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if r.Collection == triggerCollection {
				break
			}
		}
		st = p.call(address)
	}
}
