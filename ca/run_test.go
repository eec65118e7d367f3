package ca

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// whileRunning calls f beside a self-signed authority that runs, in a time of its own.
func whileRunning(t *testing.T, f func(*testing.T, *Manager)) {
	t.Helper()
	h := newHouse(t)
	h.config.Dependents = nil
	h.config.Now = nil
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		m, err := NewManager(ctx, h.config)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		f(t, m)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Over a year of running, what signs and the control plane's certificate are always valid, long
// before their ends, and whoever has the root believes them; a connection that stands is not
// touched by renewals.
func TestRunRenews(t *testing.T) {
	t.Parallel()
	whileRunning(t, func(t *testing.T, m *Manager) {
		root := m.Signer().Root
		conn := connect(t, m)
		signers, servers := map[string]bool{}, map[string]bool{}
		for range 60 {
			time.Sleep(13 * time.Hour)
			cert, err := m.ServerCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			signers[m.Signer().Cert.SerialNumber.String()], servers[cert.Leaf.SerialNumber.String()] = true, true
			if left := time.Until(cert.Leaf.NotAfter); left < serverLife/2-time.Hour {
				t.Fatalf("the control plane's certificate has %s left", left)
			}
			if left := time.Until(m.Signer().Cert.NotAfter); left < intermediateLife/2-time.Hour {
				t.Fatalf("what signs has %s left", left)
			}
			if !m.Signer().Root.Equal(root) {
				t.Fatal("the root changed")
			}
			leaf, err := Issue(m.Signer(), Grant{ID: web(t), Key: NewKey().Public()},
				time.Now())
			if err != nil || time.Until(leaf.NotAfter) < 23*time.Hour {
				t.Fatalf("a leaf: %v", err)
			}
			conn.echo(t)
		}
		if len(signers) != 3 || len(servers) < 55 {
			t.Errorf("%d intermediates in 32 days, want 3; %d certificates of the control plane", len(signers),
				len(servers))
		}
		conn.close()
	})
}

// A rotation that was begun is led on by Run, and word of it reaches who listens.
func TestRunRotates(t *testing.T) {
	t.Parallel()
	whileRunning(t, func(t *testing.T, m *Manager) {
		changed := m.Changed(t.Context())
		old := m.Signer().Root
		if _, err := m.Rotate(t.Context(), RotateRequest{Actor: "op"}); err != nil {
			t.Fatal(err)
		}
		<-changed
		for m.Bundle().has(RootID(old)) {
			<-changed
		}
		if m.Signer().Root.Equal(old) {
			t.Error("the old root signs")
		}
	})
}

// standing is a TLS connection to the control plane.
type standing struct {
	client *tls.Conn
	lines  *bufio.Reader
	served chan struct{}
}

func connect(t *testing.T, m *Manager) *standing {
	t.Helper()
	a, b := net.Pipe()
	s := &standing{served: make(chan struct{})}
	go func() {
		defer close(s.served)
		server := tls.Server(a, &tls.Config{GetCertificate: m.ServerCertificate, MinVersion: tls.VersionTLS13,
			Time: time.Now})
		lines := bufio.NewReader(server)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := server.Write([]byte(line)); err != nil {
				return
			}
		}
	}()
	roots := x509.NewCertPool()
	roots.AddCert(m.Signer().Root)
	s.client = tls.Client(b, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13,
		Time: time.Now})
	if err := s.client.Handshake(); err != nil {
		t.Fatal(err)
	}
	s.lines = bufio.NewReader(s.client)
	return s
}

func (s *standing) echo(t *testing.T) {
	t.Helper()
	if _, err := s.client.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := s.lines.ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

func (s *standing) close() {
	_ = s.client.NetConn().Close()
	<-s.served
}
