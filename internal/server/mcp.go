package server

import (
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

// newMCP serves the configuration to other control planes. It returns what the discovery server
// serves and what the assembler exports; nil: nobody may read.
func (s *Server) newMCP() (xds.Objects, *push.ExportConfig) {
	if len(s.cfg.MCP.Readers) == 0 {
		return nil, nil
	}
	catalog := mcp.NewCatalog(mcp.CatalogConfig{Readers: s.cfg.MCPReaders, Mesh: s.cfg.MeshConfig.Config})
	services := &synthesis{log: s.log.Named("mcp")} // owned by the catalog
	return catalog, &push.ExportConfig{External: mcp.IsSource, Services: s.cfg.MCP.Services,
		Publish: func(now push.Exported) {
			catalog.Publish(func() push.Objects {
				if !s.cfg.MCP.Services {
					return now.Objects
				}
				return services.objects(now)
			})
			s.proxies.PublishObjects()
		}}
}

// inRootNamespace reports whether an identity is of the root namespace of the mesh.
func (s *Server) inRootNamespace(id spiffe.ID) bool {
	m := s.cfg.MeshConfig.Config
	return m.GetRootNamespace() != "" && id.Namespace == m.GetRootNamespace() && id.TrustDomain == m.GetTrustDomain()
}
