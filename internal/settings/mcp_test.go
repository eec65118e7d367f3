package settings

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Readers are identities and two words, and each has to be able to show who he is.
func TestMCPSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"nobody":             {func(*Config) {}, ""},
		"root namespace":     {func(s *Config) { s.MCP.Readers = []string{"rootNamespace"} }, ""},
		"identity":           {func(s *Config) { s.MCP.Readers = []string{"spiffe://td/ns/ops/sa/peer"} }, ""},
		"no identity":        {func(s *Config) { s.MCP.Readers = []string{"istiod"} }, "mcp.readers"},
		"anybody, TLS alone": {func(s *Config) { s.MCP.Readers = []string{"anybody"} }, "mcp.readers"},
		"anybody":            {func(s *Config) { s.MCP.Readers, s.XDS.PlaintextAddress = []string{"anybody"}, "127.0.0.1:15010" }, ""},
		"identity, no TLS": {func(s *Config) {
			s.MCP.Readers, s.XDS.Address, s.XDS.PlaintextAddress = []string{"rootNamespace"}, "", "127.0.0.1:15010"
		}, "mcp.readers"},
		"services to nobody": {func(s *Config) { s.MCP.Services = true }, "mcp.services"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Default()
			c.change(&s)
			err := s.check()
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
	s := Default()
	s.MCP.Readers = []string{"rootNamespace", "spiffe://td/ns/ops/sa/peer"}
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	r := s.MCPReaders()
	for id, may := range map[spiffe.ID]bool{
		{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: "istiod"}: true,
		{TrustDomain: "td", Namespace: "ops", ServiceAccount: "peer"}:                       true,
		{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}:            false,
		{}: false,
	} {
		if err := r.Authorize(id); (err == nil) != may {
			t.Errorf("%s: got %v, want %v", id, err, may)
		}
	}
}
