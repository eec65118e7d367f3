package settings

import (
	"github.com/ashore-mesh/ashore/internal/spiffe"
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

// checkMCP makes MCPReaders, and checks the settings about other control planes that read.
func (s *Config) checkMCP(wrong report) {
	r := &s.MCPReaders
	for _, name := range s.MCP.Readers {
		switch name {
		case readersRoot:
			r.RootNamespace, r.TrustDomain = s.MeshConfig.Config.GetRootNamespace(), s.MeshConfig.Config.GetTrustDomain()
		case readersAnybody:
			r.Anybody = true
		default:
			id, err := spiffe.Parse(name)
			if err != nil {
				wrong("mcp.readers", "%v; or write %s, or %s", err, readersRoot, readersAnybody)
			}
			r.Identities = append(r.Identities, id)
		}
	}
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
