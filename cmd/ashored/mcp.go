package main

import (
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

// mcpSettings say which other control planes may read the configuration.
type mcpSettings struct {
	// Readers are the identities that may read it; rootNamespace stands for all of the mesh's root
	// namespace, and anybody for those too that prove nothing. Default: nobody.
	Readers []string `yaml:"readers"`
	// Relay serves what came from other control planes too. Default false.
	Relay bool `yaml:"relay"`
	// Services serves the services of registries too, as ServiceEntries. Default false.
	Services bool `yaml:"services"`
}

// The readers that are not identities.
const (
	readersRoot    = "rootNamespace"
	readersAnybody = "anybody"
)

// readers are who may read; wrong is told of those that are none.
func (s *settings) readers(wrong func(setting, format string, args ...any)) mcp.Readers {
	out := mcp.Readers{}
	for _, r := range s.MCP.Readers {
		switch r {
		case readersRoot:
			if s.mesh != nil {
				out.RootNamespace, out.TrustDomain = s.mesh.Config.GetRootNamespace(), s.mesh.Config.GetTrustDomain()
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

// checkMCP checks what has to do with other control planes that read.
func (s *settings) checkMCP(wrong func(setting, format string, args ...any)) {
	r := s.readers(wrong)
	switch {
	case r.Anybody && s.XDS.PlaintextAddress == "":
		wrong("mcp.readers", "%s: on xds.address everybody has to prove who he is: name identities, or set xds.plaintextAddress", readersAnybody)
	case len(s.MCP.Readers) > 0 && !r.Anybody && s.XDS.Address == "":
		wrong("mcp.readers", "nobody proves who he is without xds.address: set it, or write %s", readersAnybody)
	case s.MCP.Relay && len(s.MCP.Readers) == 0:
		wrong("mcp.relay", "nobody is told anything: name who may read in mcp.readers")
	case s.MCP.Services && len(s.MCP.Readers) == 0:
		wrong("mcp.services", "nobody is told anything: name who may read in mcp.readers")
	}
}

// mcpPublisher serves the configuration to other control planes. Nil: nobody may read it.
type mcpPublisher struct {
	catalog *mcp.Catalog
	server  atomic.Pointer[xds.Server]
	latest  atomic.Pointer[push.Exported] // nil before everything was read
	relay   bool                          // immutable; what came from other control planes is served too
	// services adds the services of registries; nil: they are not served. It belongs to the
	// catalog.
	services *synthesis
}

// newMCPPublisher makes a publisher when the settings name readers.
func newMCPPublisher(s settings, log hclog.Logger) *mcpPublisher {
	if len(s.MCP.Readers) == 0 {
		return nil
	}
	p := &mcpPublisher{relay: s.MCP.Relay}
	p.catalog = mcp.NewCatalog(mcp.CatalogConfig{Readers: s.readers(func(string, string, ...any) {}),
		Mesh: s.mesh.Config})
	if s.MCP.Services {
		p.services = &synthesis{log: log}
	}
	return p
}

// exportConfig is what the assembler exports; nil: nothing.
func (p *mcpPublisher) exportConfig() *push.ExportConfig {
	if p == nil {
		return nil
	}
	return &push.ExportConfig{
		External: func(source string) bool { return !p.relay && mcp.IsSource(source) },
		Services: p.services != nil, Publish: p.publish,
	}
}

// objects is what the discovery server serves.
func (p *mcpPublisher) objects() xds.Objects {
	if p == nil {
		return nil
	}
	return p.catalog
}

// publish serves what the assembler exports.
func (p *mcpPublisher) publish(now push.Exported) {
	p.latest.Store(&now)
	objects := func() push.Objects { return now.Objects }
	if p.services != nil {
		objects = func() push.Objects { return p.services.objects(now) }
	}
	p.catalog.Publish(objects)
	if server := p.server.Load(); server != nil {
		server.PublishObjects()
	}
}

// exported are the objects that are served; none before all of them were read.
func (p *mcpPublisher) exported() (none push.Objects) {
	if p == nil {
		return none
	}
	if latest := p.latest.Load(); latest != nil {
		return latest.Objects
	}
	return none
}
