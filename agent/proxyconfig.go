package agent

import (
	"maps"
	"runtime"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/agent/envoy"
)

// maxConcurrency bounds the worker threads of Envoy.
const maxConcurrency = 1024

// selfDiscoveryVariable, with the value "true", tells Envoy the endpoints of the workload's own service.
// zoneAwareLbSetting needs them. Source: Istio.
const selfDiscoveryVariable = "ISTIO_META_ENABLE_SELF_DISCOVERY"

// startSettings is the part of a ProxyConfig with which Envoy is started.
func startSettings(c *meshconfig.ProxyConfig) *meshconfig.ProxyConfig {
	out := &meshconfig.ProxyConfig{Concurrency: c.GetConcurrency(), DrainDuration: c.GetDrainDuration(),
		ProxyStatsMatcher: c.GetProxyStatsMatcher(), ProxyMetadata: map[string]string{}}
	for name, value := range c.GetProxyMetadata() {
		reserved := strings.HasPrefix(name, "ASHORE_") || strings.HasPrefix(name, "ISTIO_META_")
		if !reserved || name == selfDiscoveryVariable {
			out.ProxyMetadata[name] = value
		}
	}
	return out
}

// adopt takes over what the mesh sets and these settings leave at their defaults.
func (e *Envoy) adopt(c *meshconfig.ProxyConfig) {
	e.mesh = startSettings(c)
	switch n := e.mesh.Concurrency; {
	case e.Concurrency != 0:
	case n == nil:
		e.Concurrency = min(2, runtime.NumCPU())
	case n.Value == 0:
		e.Concurrency = runtime.NumCPU()
	default:
		e.Concurrency = min(int(n.Value), maxConcurrency)
	}
	if d := e.mesh.DrainDuration; d != nil && e.DrainTime == Default().Envoy.DrainTime {
		e.DrainTime = d.AsDuration()
	}
}

// selfDiscovery reports whether Envoy gets the endpoints of the workload's own service.
func (e *Envoy) selfDiscovery() bool {
	return e.mesh.GetProxyMetadata()[selfDiscoveryVariable] == "true"
}

// options are what Envoy is started with.
func (s *Settings) options() envoy.Options {
	o := envoy.Options{Concurrency: s.Envoy.Concurrency, DrainTime: s.Envoy.DrainTime, Service: serviceOf(&s.Workload)}
	variables := s.Envoy.mesh.GetProxyMetadata()
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		o.Variables = append(o.Variables, name+"="+variables[name])
	}
	return o
}

// setConfig takes what the control plane sends about this workload. What Envoy is started with changes
// when the agent starts the next time.
func (a *Agent) setConfig(c *meshconfig.ProxyConfig) {
	settings, before := startSettings(c), startSettings(a.config.Swap(c))
	if a.bootstrap != nil && !proto.Equal(settings, before) && !proto.Equal(settings, a.settings.Envoy.mesh) {
		a.log.Info("envoy gets the changed settings of the mesh when this agent starts again")
	}
}

// drainSettings says how Envoy ends.
func (a *Agent) drainSettings() Drain {
	d := a.settings.Drain
	if t := a.config.Load().GetTerminationDrainDuration(); t != nil && d == Default().Drain {
		d.Maximum = t.AsDuration()
	}
	return d
}
