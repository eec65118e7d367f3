package server

import (
	"context"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// withdrawTimeout is how long a reload waits until the entries of an export are removed.
const withdrawTimeout = 10 * time.Second

// export registers services of the mesh in the Consul of a source that has the option export.
type export struct {
	*consul.Exporter
	source, owner string
	ended         chan struct{} // closed when it has ended
}

// exportOwner returns the option export.owner of a source; empty if it has no export.
func exportOwner(s settings.Source) string {
	if c, ok := s.Options.(*settings.ConsulSource); ok {
		return c.Export.Owner
	}
	return ""
}

// newExports makes the exporters.
func (s *Server) newExports() error {
	for _, src := range s.cfg.SourceList {
		if exportOwner(src) == "" {
			continue
		}
		e, err := consul.NewExporter(consul.ExporterConfig{Name: src.ID(),
			Options:  src.Options.(*settings.ConsulSource).Options,
			ExportTo: s.cfg.MeshConfig.Config.GetDefaultServiceExportTo(),
			Replica:  strings.ReplaceAll(settings.MachineName(), ".", "-"), Log: s.log.Named("export")})
		if err != nil {
			return err
		}
		x := export{e, src.ID(), exportOwner(src), make(chan struct{})}
		s.exports = append(s.exports, x)
		s.run("export to "+src.ID(), func(ctx context.Context) error {
			defer close(x.ended)
			return e.Run(ctx)
		})
		s.report(func() []feed.Problem { return e.Status().Problems })
		s.collect(func(emit emitFunc) {
			emit("ashore_export_entries", "Endpoints of the mesh that this replica keeps registered in a Consul.",
				float64(e.Status().Entries), "source", src.ID())
		})
	}
	return nil
}

// Withdraw removes what exports have registered that next does not have any more. It waits up to
// withdrawTimeout. Entries that are left turn critical.
func (s *Server) Withdraw(ctx context.Context, next settings.Config) {
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	for _, x := range s.exports {
		if src, _ := next.Source(x.source); exportOwner(src) == x.owner {
			continue
		}
		x.Withdraw()
		select {
		case <-x.ended:
		case <-ctx.Done():
		}
	}
}
