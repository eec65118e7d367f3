package server

import (
	"reflect"
	"strings"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// exports register services of the mesh in the Consuls whose sources have the option export. Exports
// are made when ashored starts. A reload only ends those that the settings do not have any more.
type exports struct {
	started   map[string]consul.Options // by source, without those that ended; owned by Reload
	exporters map[string]*consul.Exporter
}

// exported returns the options of the sources with an export, by source.
func exported(list []settings.Source) map[string]consul.Options {
	out := map[string]consul.Options{}
	for _, s := range list {
		if c, ok := s.Options.(*settings.ConsulSource); ok && c.Export.Owner != "" {
			out[s.ID()] = c.Options
		}
	}
	return out
}

// newExports makes the exporters.
func (s *Server) newExports(cfg settings.Config) error {
	s.exports = exports{started: exported(cfg.SourceList), exporters: map[string]*consul.Exporter{}}
	for source, options := range s.exports.started {
		e, err := consul.NewExporter(consul.ExporterConfig{Name: source, Options: options,
			ExportTo: cfg.MeshConfig.Config.GetDefaultServiceExportTo(),
			Replica:  strings.ReplaceAll(settings.MachineName(), ".", "-"), Log: s.log.Named("export")})
		if err != nil {
			return err
		}
		s.exports.exporters[source] = e
		s.run("export to "+source, e.Run)
		s.report(func() []feed.Problem { return e.Status().Problems })
		s.collect(func(emit emitFunc) {
			emit("ashore_export_entries", "Endpoints of the mesh that this replica keeps registered in a Consul.",
				float64(e.Status().Entries), "source", source)
		})
	}
	return nil
}

// publish makes the services of c those that are registered.
func (x *exports) publish(c *push.Context) {
	in := c.Inputs()
	for _, e := range x.exporters {
		e.Publish(in.Services, in.Endpoints)
	}
}

// reload removes what exports have registered that next does not have. It returns the sources whose
// export is new or has changed, which waits for the next start.
func (x *exports) reload(next []settings.Source) (later []string) {
	wanted := exported(next)
	for source := range x.started {
		if _, ok := wanted[source]; !ok {
			x.exporters[source].Withdraw()
			delete(x.started, source)
		}
	}
	for source, options := range wanted {
		if was, ok := x.started[source]; !ok || !reflect.DeepEqual(was, options) {
			later = append(later, "export of "+source)
		}
	}
	return later
}
