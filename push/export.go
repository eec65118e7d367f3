package push

import (
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// ExportConfig says what other control planes get: what our own sources supply.
type ExportConfig struct {
	// External reports whether the content of a source belongs to another control plane. It is not
	// exported.
	External func(source string) bool
	// Services exports the services of registries too.
	Services bool
	// Publish receives what is exported whenever it changed, at first when all required sources
	// that are not External have delivered.
	Publish func(Exported)
}

// Exported is what other control planes get. Comparable.
type Exported struct {
	// Objects are the configuration objects.
	Objects Objects
	// Services and Endpoints are what our registries know, whatever configuration declares. Each
	// host is there once.
	Services  Services
	Endpoints Endpoints
}

// exporter keeps what is exported.
type exporter struct {
	cfg  *ExportConfig
	join registry.JoinConfig
	gap  time.Duration // the least time between two calls of Publish

	current   Exported
	published Exported
	last      time.Time // when it was published; zero: never
}

func (e *exporter) setObject(k config.Key, supplies []feed.Supply[*config.Object]) {
	external := func(s feed.Supply[*config.Object]) bool { return e.cfg.External(s.Source) }
	e.current.Objects = replace(e.current.Objects, k, first(slices.DeleteFunc(slices.Clone(supplies), external)))
}

func (e *exporter) setServices(host registry.Host, parts []registry.Part) {
	if !e.cfg.Services {
		return
	}
	configured := func(p registry.Part) bool { return p.Service.Declared() || p.Service.Relayed }
	var services []registry.Instances
	for _, j := range e.join.Join(slices.DeleteFunc(slices.Clone(parts), configured)) {
		services = append(services, j.Instances)
	}
	x := &e.current
	x.Services, x.Endpoints = replaceHost(x.Services, x.Endpoints, host, services)
}

// publish publishes what is exported if it changed, unless the required sources of our own are
// still waited for. It returns when to call it again; zero: after the next event.
func (e *exporter) publish(waiting []string, now time.Time) time.Time {
	own := func(source string) bool { return !e.cfg.External(source) }
	if e.last.IsZero() && slices.ContainsFunc(waiting, own) || !e.last.IsZero() && e.current == e.published {
		return time.Time{}
	}
	if next := e.last.Add(e.gap); now.Before(next) {
		return next
	}
	e.cfg.Publish(e.current)
	e.published, e.last = e.current, now
	return time.Time{}
}
