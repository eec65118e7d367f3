package ca

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"
)

// A replica that asks another whether it is there believes a control plane of its own mesh, and
// neither another mesh's nor a workload.
func TestControlPlaneTLS(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.config.Now = nil // handshakes go by the clock
	m, other := h.move(), newHouse(t)
	other.config.Now = nil
	foreign := other.move()
	key := NewKey()
	leaf, err := Issue(m.Signer(), Grant{ID: web(t), Key: key.Public()}, m.config.Now())
	if err != nil {
		t.Fatal(err)
	}
	workload := &tls.Certificate{Certificate: [][]byte{leaf.Raw, m.Signer().Cert.Raw}, PrivateKey: key}
	for name, tc := range map[string]struct {
		server func(*tls.ClientHelloInfo) (*tls.Certificate, error)
		want   string
	}{
		"a control plane": {m.ServerCertificate, ""},
		"of another mesh": {foreign.ServerCertificate, "unknown authority"},
		"a workload's":    {func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return workload, nil }, "extended key usage|it is not spiffe://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := net.Pipe()
			server := tls.Server(a, &tls.Config{GetCertificate: tc.server, MinVersion: tls.VersionTLS13})
			served := make(chan struct{})
			go func() { defer close(served); _ = server.Handshake(); _ = a.Close() }()
			client := tls.Client(b, controlPlaneTLS(m.Bundle(), "cluster.local", time.Now()))
			err := client.Handshake()
			_ = b.Close()
			<-served
			ok := tc.want == "" && err == nil
			for part := range strings.SplitSeq(tc.want, "|") {
				ok = ok || tc.want != "" && err != nil && strings.Contains(err.Error(), part)
			}
			if !ok {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
