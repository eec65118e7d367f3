package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// Readers are identities and two words, and each has to be able to show who he is.
func TestMCPSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*settings)
		want   string
	}{
		"nobody":             {func(*settings) {}, ""},
		"root namespace":     {func(s *settings) { s.MCP.Readers = []string{"rootNamespace"} }, ""},
		"identity":           {func(s *settings) { s.MCP.Readers = []string{"spiffe://td/ns/ops/sa/peer"} }, ""},
		"no identity":        {func(s *settings) { s.MCP.Readers = []string{"istiod"} }, "mcp.readers"},
		"anybody, TLS alone": {func(s *settings) { s.MCP.Readers = []string{"anybody"} }, "mcp.readers"},
		"anybody":            {func(s *settings) { s.MCP.Readers, s.XDS.PlaintextAddress = []string{"anybody"}, "127.0.0.1:15010" }, ""},
		"identity, no TLS": {func(s *settings) {
			s.MCP.Readers, s.XDS.Address, s.XDS.PlaintextAddress = []string{"rootNamespace"}, "", "127.0.0.1:15010"
		}, "mcp.readers"},
		"relay to nobody": {func(s *settings) { s.MCP.Relay = true }, "mcp.relay"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := defaults()
			c.change(&s)
			err := s.check("test.yaml")
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// The root namespace and the trust domain are those of the mesh.
func TestMCPReaders(t *testing.T) {
	t.Parallel()
	s := defaults()
	s.MCP.Readers = []string{"rootNamespace", "spiffe://td/ns/ops/sa/peer"}
	if err := s.check("test.yaml"); err != nil {
		t.Fatal(err)
	}
	r := s.readers(func(string, string, ...any) {})
	for id, may := range map[spiffe.ID]bool{
		{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: "istiod"}: true,
		{TrustDomain: "td", Namespace: "ops", ServiceAccount: "peer"}:                       true,
		{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}:            false,
		{}: false,
	} {
		if err := r.May(id); (err == nil) != may {
			t.Errorf("%s: got %v, want %v", id, err, may)
		}
	}
}

// Who waits for another control plane lets workloads of the groups of its own sources join, and
// names what it waits for of others: the other one may need a certificate first.
func TestJoinBeforeTheNeighbour(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings, group, want string
	}{
		"own group":     {"{readers: [rootNamespace]}", "shop/web", ""},
		"unknown group": {"{readers: [rootNamespace]}", "shop/none", "waits for the first build, mcp:peer (setting sources[0].required, "},
		"with a relay":  {"{readers: [rootNamespace], relay: true}", "shop/web", "mcp:peer (setting sources[0].required, "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSecureSite(t)
			config := filepath.Join(s.dir, "ashored.yaml")
			away := testport.Address(t)
			text := fmt.Sprintf("sources:\n- {name: peer, kind: mcp, address: '%s', plaintext: true}\n- {kind: files, folder: %s}\nmcp: %s\n", away, filepath.Join(s.dir, "files"), c.settings)
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s.argv = []string{"--dev", "--config", config, "--state", filepath.Join(s.dir, "state"), "--xds-address",
				s.xds, "--xds-tls-address", s.secure, "--metrics-address", s.metrics}
			s.launch(t)
			var made admin.Token
			s.until(t, "an answer", func() bool {
				var err error
				made, err = admin.NewClient(s.socket).CreateToken(t.Context(), admin.TokenRequest{Group: c.group})
				return c.want == "" && err == nil || c.want != "" && err != nil && strings.Contains(err.Error(), c.want)
			})
			if c.want != "" {
				return
			}
			web := s.newMember(t, made)
			if err := web.ask(t, made.Token, "web-1"); err != nil {
				t.Error(err)
			}
		})
	}
}
