package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

// mcpSettings say which other control planes are told the configuration.
type mcpSettings struct {
	// Readers are the identities that may read it; rootNamespace stands for all of the mesh's root namespace, and anybody for
	// those too that prove nothing. Default: nobody.
	Readers []string `yaml:"readers"`
	// Relay tells them what came from other control planes as well. Default false.
	Relay bool `yaml:"relay"`
	// Services tells them services of registries as well, as ServiceEntries. Default false.
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

// informants tell other control planes the configuration. Nil: nobody is told.
type informants struct {
	catalog *mcp.Catalog
	older   *mcp.Server
	xds     atomic.Pointer[xds.Server]
	told    atomic.Pointer[push.Told] // what is our own; nil before all of it was read
	relay   bool                      // set once: what came from other control planes is told as well
	// services adds those of registries to what is told; nil: they are not told. It belongs to the catalog, which calls it
	// when somebody asks.
	services *synthesis
	// doubt says that the store may have lost what others are told of; nil: nobody can tell. It is set before anything is told.
	doubt func() bool

	publishing sync.Mutex
	open       bool // guarded by publishing: something was told
}

// newInformants makes them, when the settings name readers.
func newInformants(s settings, record func(audit.Event), log hclog.Logger) (*informants, error) {
	if len(s.MCP.Readers) == 0 {
		return nil, nil
	}
	in := &informants{relay: s.MCP.Relay}
	in.catalog = mcp.NewCatalog(mcp.CatalogConfig{Readers: s.readers(func(string, string, ...any) {}), Mesh: s.mesh.Config})
	if s.MCP.Services {
		in.services = &synthesis{log: log}
	}
	var err error
	in.older, err = mcp.NewServer(mcp.ServerConfig{Catalog: in.catalog, Identify: in.identify, Audit: record, Log: log})
	return in, err
}

// telling is what the assembler has to know to tell it; nil: nobody is told.
func (in *informants) telling() *push.Telling {
	if in == nil {
		return nil
	}
	return &push.Telling{
		Foreign:  func(source string) bool { return !in.relay && mcp.Named(source) },
		Services: in.services != nil, Publish: in.publish,
	}
}

// objects are those that the discovery server tells.
func (in *informants) objects() xds.Objects {
	if in == nil {
		return nil
	}
	return in.catalog
}

// publish makes what is our own what is told, unless the store is in doubt: whoever reads would lose what it had.
func (in *informants) publish(what push.Told) {
	in.told.Store(&what)
	in.tell(true)
}

// tell tells the latest that is our own; news says that it is another one than before.
func (in *informants) tell(news bool) {
	in.publishing.Lock()
	defer in.publishing.Unlock()
	latest := in.told.Load()
	if latest == nil || in.open && !news || !in.open && in.doubt != nil && in.doubt() {
		return
	}
	what := *latest
	in.open = true
	if in.services == nil {
		in.catalog.Publish(what.Objects)
	} else {
		in.catalog.PublishFrom(func() push.Objects { return in.services.objects(what) })
	}
	if server := in.xds.Load(); server != nil {
		server.PublishObjects()
	}
}

// own are the objects that are our own; none before all of them were read, and where nobody is told.
func (in *informants) own() (none push.Objects) {
	if in == nil {
		return none
	}
	told := in.told.Load()
	if told == nil {
		return none
	}
	return told.Objects
}

// readers are those that read by the older protocol; package xds knows the others.
func (in *informants) readers() []mcp.ReaderStatus {
	if in == nil {
		return nil
	}
	return in.older.Readers()
}

// identify says who reads, as the discovery server does.
func (in *informants) identify(ctx context.Context) (spiffe.ID, time.Time, error) {
	who, err := in.xds.Load().Identify(ctx)
	return who.Identity, who.Expires, err
}

// run begins with what it needs of the discovery server.
func (in *informants) run(p *program, server *xds.Server) {
	if in == nil {
		return
	}
	in.xds.Store(server)
	p.run("mcp", in.older.Run)
	if in.doubt != nil {
		p.run("readers of a store in doubt", in.await)
	}
}

// register adds the older protocol to a server that serves xDS.
func (in *informants) register(g *grpc.Server) {
	if in != nil {
		in.older.Register(g)
	}
}

// recheck looks anew at everybody who reads: somebody was revoked.
func (in *informants) recheck() {
	if in != nil {
		in.older.Recheck()
	}
}
