package mcp

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
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
	log  hclog.Logger
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	stands string // guarded by mu: how the sink said to stand last
}

// standing is how the sink stands.
func (p *parties) standing() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stands
}

// waits waits until the sink stands as it should.
func (p *parties) waits(want string) {
	p.t.Helper()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(p.standing(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("it stands as %q, want %q", p.standing(), want)
		}
	}
}

func newParties(t *testing.T) *parties {
	t.Helper()
	p := &parties{t: t, log: testlog.New(t), dir: t.TempDir()}
	p.cert, p.key = p.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)})
	return p
}

// file is where a part of a party is.
func (p *parties) file(name string) string { return filepath.Join(p.dir, name) }

// sign makes NAME.pem and NAME-key.pem of a template, which it leaves as it is.
func (p *parties) sign(name string, of *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	copied := *of
	template := &copied
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
		Peers: []string{"peer"}, Log: p.log})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, done := make(chan feed.Batch[*config.Object]), make(chan error, 1)
	go func() { done <- s.Run(ctx, out) }()
	go func() {
		for {
			select {
			case b := <-out:
				if b.Standing != nil {
					p.mu.Lock()
					p.stands = b.Standing.Error
					p.mu.Unlock()
				}
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

// Who is turned away is named with why, in how the source stands and in the log, until somebody is connected who may.
func TestSinkTurnsAway(t *testing.T) {
	t.Parallel()
	client := &x509.Certificate{NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	stranger := newParties(t)
	stranger.sign("stranger", client)
	shows := func(p *parties, name string) []tls.Certificate {
		pair, err := tls.LoadX509KeyPair(p.file(name+".pem"), p.file(name+"-key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{pair}
	}
	for name, c := range map[string]struct {
		creds  func(p *parties, pool *x509.CertPool) credentials.TransportCredentials
		method string
		want   string
	}{
		"another name": {func(p *parties, pool *x509.CertPool) credentials.TransportCredentials {
			return credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "sink", Certificates: shows(p, "other")})
		}, "", `(nobody has called yet; 127.0.0.1 was turned away: the caller is "other", which peers does not name)`},
		"another authority": {func(_ *parties, pool *x509.CertPool) credentials.TransportCredentials {
			return credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "sink", Certificates: shows(stranger, "stranger")})
		}, "", `127.0.0.1 was turned away: the caller shows a certificate of "stranger" (x509: certificate signed by unknown authority`},
		"no certificate": {func(_ *parties, pool *x509.CertPool) credentials.TransportCredentials {
			return credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "sink"})
		}, "", "127.0.0.1 was turned away: tls: client didn't provide a certificate"},
		"no trust": {func(p *parties, _ *x509.CertPool) credentials.TransportCredentials {
			return credentials.NewTLS(&tls.Config{RootCAs: x509.NewCertPool(), ServerName: "sink", Certificates: shows(p, "peer")})
		}, "", "127.0.0.1 was turned away: it does not take our certificate (remote error: tls:"},
		"no TLS": {func(*parties, *x509.CertPool) credentials.TransportCredentials { return insecure.NewCredentials() }, "",
			"127.0.0.1 was turned away: it does not speak TLS"},
		"another service": {func(p *parties, pool *x509.CertPool) credentials.TransportCredentials {
			return credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "sink", Certificates: shows(p, "peer")})
		}, legacypb.ResourceSource_EstablishResourceStream_FullMethodName, `peer at 127.0.0.1 was turned away: it called "/istio.mcp.v1alpha1.ResourceSource/EstablishResourceStream"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
			lines := &testlog.Text{}
			p.log = hclog.New(&hclog.LoggerOptions{Output: lines})
			address := p.listening()
			p.sign("peer", client)
			p.sign("other", client)
			pool := x509.NewCertPool()
			pool.AddCert(p.cert)
			conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(c.creds(p, pool)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			method := cmp.Or(c.method, legacypb.ResourceSink_EstablishResourceStream_FullMethodName)
			st, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
			if err == nil {
				err = st.RecvMsg(&legacypb.RequestResources{})
			}
			if err == nil {
				t.Fatal("it was let in")
			}
			p.waits(c.want)
			if got := lines.String(); !strings.Contains(got, "a caller was turned away") || strings.Count(got, "a caller was turned away") > 10 {
				t.Errorf("the log has %s", got)
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			p.call(address)
		})
	}
}

// Who was turned away does not have the source stand as another one at each call, nor is it told once somebody came who may; who
// only looks whether somebody listens was not turned away.
func TestSinkTurnsAwaySeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSinking(t)
		s.stands()
		for i := range 60 {
			s.source.turnAway(fmt.Sprintf("10.0.0.%d", i%2), errors.New("no"))
			s.source.turnAway("10.0.0.9", fmt.Errorf("read: %w", io.EOF))
			time.Sleep(time.Second)
		}
		if got := s.stands(); len(got) == 0 || len(got) > 7 || !strings.Contains(got[0], "nobody has called yet; 10.0.0.0 was turned away: no)") || strings.Contains(strings.Join(got, " "), "10.0.0.9") {
			t.Errorf("it stands as %q", got)
		}
		s.source.turnAway("10.0.0.7", errors.New("no")) // within the time of another one
		s.source.turnAway("10.0.0.8", errors.New("no"))
		time.Sleep(turnedGap)
		if got := s.stands(); len(got) != 1 || !strings.Contains(got[0], "10.0.0.8 was turned away") {
			t.Errorf("at the end it stands as %q", got)
		}
		_, stop := s.call("10.0.0.1")
		stop()
		if got := s.stands(); len(got) != 2 || got[0] != "" || strings.Contains(got[1], "turned away") {
			t.Errorf("after a call it stands as %q", got)
		}
	})
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
