package settings

import (
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/mcp"
)

// MCP selects the other control planes that may read the configuration.
type MCP struct {
	// Readers are the identities that may read it; rootNamespace means all of the mesh's root
	// namespace, and anybody includes clients without an identity. Default: nobody.
	Readers []string `yaml:"readers"`
	// Services serves the services of registries too, as ServiceEntries. Default false.
	Services bool `yaml:"services"`
}

// The readers that are not identities.
const (
	readersRoot    = "rootNamespace"
	readersAnybody = "anybody"
)

// readers returns who may read. It reports invalid readers to wrong.
func (s *Config) readers(wrong report) mcp.Readers {
	out := mcp.Readers{}
	for _, r := range s.MCP.Readers {
		switch r {
		case readersRoot:
			if s.MeshConfig != nil {
				out.RootNamespace, out.TrustDomain = s.MeshConfig.Config.GetRootNamespace(), s.MeshConfig.Config.GetTrustDomain()
			}
		case readersAnybody:
			out.Anybody = true
		default:
			id, err := spiffe.Parse(r)
			if err != nil {
				wrong("mcp.readers", "%v; or write %s, or %s", err, readersRoot, readersAnybody)
			}
			out.Identities = append(out.Identities, id)
		}
	}
	return out
}

// checkMCP checks the settings about other control planes that read.
func (s *Config) checkMCP(wrong report) {
	r := s.readers(wrong)
	switch {
	case r.Anybody && s.XDS.PlaintextAddress == "":
		wrong("mcp.readers", "%s: xds.address needs an identity: name identities, or set xds.plaintextAddress",
			readersAnybody)
	case len(s.MCP.Readers) > 0 && !r.Anybody && s.XDS.Address == "":
		wrong("mcp.readers", "there are no identities without xds.address: set it, or write %s", readersAnybody)
	case s.MCP.Services && len(s.MCP.Readers) == 0:
		wrong("mcp.services", "nobody may read: name identities in mcp.readers")
	}
}

// MCPReaders returns who may read the configuration.
func (s *Config) MCPReaders() mcp.Readers { return s.readers(func(string, string, ...any) {}) }
