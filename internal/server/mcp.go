package server

import (
	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

// mcpPublisher serves the configuration to other control planes. Nil: nobody may read it.
type mcpPublisher struct {
	catalog *mcp.Catalog
	// services adds the services of registries; nil: they are not served. It is owned by the
	// catalog.
	services *synthesis
}

// newMCPPublisher returns a publisher if the settings name readers.
func newMCPPublisher(s settings.Config, log hclog.Logger) *mcpPublisher {
	if len(s.MCP.Readers) == 0 {
		return nil
	}
	p := &mcpPublisher{catalog: mcp.NewCatalog(mcp.CatalogConfig{Readers: s.MCPReaders,
		Mesh: s.MeshConfig.Config})}
	if s.MCP.Services {
		p.services = &synthesis{log: log}
	}
	return p
}

// exportConfig returns what the assembler exports; nil: nothing. notify is called after each
// change.
func (p *mcpPublisher) exportConfig(notify func()) *push.ExportConfig {
	if p == nil {
		return nil
	}
	return &push.ExportConfig{External: mcp.IsSource, Services: p.services != nil,
		Publish: func(now push.Exported) {
			p.publish(now)
			notify()
		}}
}

// objects returns what the discovery server serves.
func (p *mcpPublisher) objects() xds.Objects {
	if p == nil {
		return nil
	}
	return p.catalog
}

// publish serves what the assembler exports.
func (p *mcpPublisher) publish(now push.Exported) {
	objects := func() push.Objects { return now.Objects }
	if p.services != nil {
		objects = func() push.Objects { return p.services.objects(now) }
	}
	p.catalog.Publish(objects)
}
