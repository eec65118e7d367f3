package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// exports keep services of the mesh registered in the Consuls whose sources say so (export). Safe
// for concurrent use.
type exports struct {
	exportTo []string // of services that say nothing
	log      hclog.Logger

	again chan struct{} // capacity 1: there are others than before

	mu sync.Mutex
	// the following are guarded by mu
	wanted map[string]exporting // by the setting's name
	latest *push.Context        // nil until there is one
}

// exporting is one Consul to which the mesh is exported.
type exporting struct {
	text     string // of the setting, equal for equal ones
	exporter *consul.Exporter
}

func newExports(mesh *push.Mesh, log hclog.Logger) *exports {
	return &exports{exportTo: mesh.Config.GetDefaultServiceExportTo(), log: log, again: make(chan struct{}, 1),
		wanted: map[string]exporting{}}
}

// arrange has these sources' exports be what there is. What is as it was before goes on. With an
// error nothing is another.
func (x *exports) arrange(list []settings.Source) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	next := map[string]exporting{}
	var errs []error
	for _, s := range list {
		c, ok := s.Options.(*settings.ConsulSource)
		if !ok || c.Export.Owner == "" {
			continue
		}
		if old, had := x.wanted[s.Name]; had && old.text == s.Text {
			next[s.Name] = old
			continue
		}
		e, err := consul.NewExporter(consul.ExporterConfig{Name: s.Name, Options: c.Options, ExportTo: x.exportTo,
			Replica: strings.ReplaceAll(settings.MachineName(), ".", "-"), Log: x.log.Named(s.Name)})
		if err != nil {
			errs = append(errs, fmt.Errorf("source %q (%s): %w", s.Name, s.At, err))
			continue
		}
		if x.latest != nil {
			publishTo(e, x.latest)
		}
		next[s.Name] = exporting{s.Text, e}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	x.wanted = next
	task.Poke(x.again)
	return nil
}

// publish makes c what is registered.
func (x *exports) publish(c *push.Context) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.latest = c
	for _, e := range x.wanted {
		publishTo(e.exporter, c)
	}
}

func publishTo(e *consul.Exporter, c *push.Context) {
	in := c.Inputs()
	e.Publish(in.Services, in.Endpoints)
}

// runningExport is one that runs.
type runningExport struct {
	stop context.CancelFunc
	done chan struct{} // closed at its end
}

// run runs the wanted exporters until ctx ends. One that is not wanted any more removes what it has
// registered. Where another one takes its place, it only stops, and the other finds everything.
func (x *exports) run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	running := map[*consul.Exporter]runningExport{}
	for {
		wanted := x.exporters()
		for e, r := range running {
			if slices.Contains(wanted, e) {
				continue
			}
			delete(running, e)
			if slices.ContainsFunc(wanted, func(o *consul.Exporter) bool { return o.Target() == e.Target() }) {
				r.stop()
				<-r.done
			} else {
				e.Withdraw()
			}
		}
		for _, e := range wanted {
			if _, runs := running[e]; runs {
				continue
			}
			one, stop := context.WithCancel(ctx)
			done := make(chan struct{})
			running[e] = runningExport{stop, done}
			all.Go(func() {
				defer close(done)
				defer stop()
				if err := e.Run(one); err != nil {
					x.log.Error("services of the mesh are not registered in a Consul any more", "error", err)
				}
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-x.again:
		}
	}
}

// exporters are those that are wanted.
func (x *exports) exporters() []*consul.Exporter {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*consul.Exporter
	for _, name := range slices.Sorted(maps.Keys(x.wanted)) {
		out = append(out, x.wanted[name].exporter)
	}
	return out
}

// problems are those of all of them.
func (x *exports) problems() []feed.Problem {
	var out []feed.Problem
	for _, e := range x.exporters() {
		out = append(out, e.Status().Problems...)
	}
	return out
}

// collect reports what is exported to each Consul.
func (x *exports) collect(emit emitFunc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, e := range x.wanted {
		s := e.exporter.Status()
		emit("ashore_export_entries",
			"Endpoints of the mesh that this replica keeps registered in a Consul; 0 where another replica does.",
			float64(s.Entries), "source", "consul:"+name)
		emit("ashore_export_writes_total",
			"Transactions by which endpoints of the mesh were written to a Consul.",
			float64(s.Writes), "source", "consul:"+name)
	}
}
