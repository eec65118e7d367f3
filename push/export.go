package push

import (
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// ExportConfig configures what is exported to other control planes: the content of our own sources.
type ExportConfig struct {
	// External reports whether the content of a source belongs to another control plane. Such
	// content is not exported.
	External func(source string) bool
	// Services means that the services of registries are exported too.
	Services bool
	// Publish receives what is exported after each change. The first call is when all required
	// sources that are not External have delivered.
	Publish func(Exported)
}

// Exported is what is exported to other control planes. Comparable.
type Exported struct {
	// Objects holds the configuration objects.
	Objects Objects
	// Services and Endpoints hold the services of our registries, without what configuration
	// declares. Hosts are unique.
	Services  Services
	Endpoints Endpoints
}

// exporter collects what is exported.
type exporter struct {
	cfg  *ExportConfig
	join registry.JoinConfig
	gap  time.Duration // the shortest time between two calls of Publish

	current   Exported
	published Exported
	last      time.Time // when published was published; zero: never
}

func (e *exporter) setObject(k config.Key, supplies []feed.Supply[*config.Object]) {
	external := func(s feed.Supply[*config.Object]) bool { return e.cfg.External(s.Source) }
	e.current.Objects = set(e.current.Objects, k, first(slices.DeleteFunc(slices.Clone(supplies), external)))
}

func (e *exporter) setServices(host registry.Host, parts []registry.Part) {
	if !e.cfg.Services {
		return
	}
	configured := func(p registry.Part) bool { return p.Service.Declared || p.Service.Relayed }
	var services []registry.Instances
	for _, j := range e.join.Join(slices.DeleteFunc(slices.Clone(parts), configured)) {
		services = append(services, j.Instances)
	}
	x := &e.current
	x.Services, x.Endpoints = replaceHost(x.Services, x.Endpoints, host, services)
}

// publish publishes what is exported if it changed, unless a required source of our own has not
// delivered yet. It returns when to call it again. Zero if it need not be called before the next
// event.
func (e *exporter) publish(waiting []string, now time.Time) time.Time {
	local := func(source string) bool { return !e.cfg.External(source) }
	if e.last.IsZero() && slices.ContainsFunc(waiting, local) || !e.last.IsZero() && e.current == e.published {
		return time.Time{}
	}
	if next := e.last.Add(e.gap); now.Before(next) {
		return next
	}
	e.cfg.Publish(e.current)
	e.published, e.last = e.current, now
	return time.Time{}
}
