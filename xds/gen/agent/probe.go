package agent

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unique"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/workload"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// ProbeType is how agents get the readiness probe of their WorkloadGroup and the ports of their
// workload: Istio's own message with fields of Ashore's own. A proxy of Istio never asks for it.
// Source: istio.io, WorkloadGroup, ReadinessProbe.
const ProbeType = "type.googleapis.com/istio.networking.v1alpha3.ReadinessProbe"

// ProbeName is the name of the one resource of type ProbeType.
const ProbeName = "readiness-probe"

// Probes makes the resource that holds the probe of a workload's group.
type Probes struct{}

// probeIn is everything that the resource depends on.
type probeIn struct {
	encoded unique.Handle[string]
	// ports are those of the workload, separated by spaces, each as in resource.ProbePortsField.
	ports string
}

// Plans implements envoy.Kind. There is nothing for who did not register from a group. A group without
// a probe has an empty one: so an agent can tell it from a control plane that does not know.
func (Probes) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	if sc.Probe == (unique.Handle[string]{}) {
		return nil, nil
	}
	return probeIn{sc.Probe, portsOf(sc)}, nil
}

// Layer implements envoy.Plan.
func (in probeIn) Layer() *envoy.Layer {
	r := resource.New(ProbeType, ProbeName, nil, func() []byte {
		b := []byte(in.encoded.Value())
		for port := range strings.FieldsSeq(in.ports) {
			b = envoy.AppendText(b, resource.ProbePortsField, port)
		}
		return b
	})
	return envoy.NewLayer(r)
}

// portsOf lists the TCP ports at which the workload serves, with where the application listens when
// a Sidecar says that.
func portsOf(sc *push.Scope) string {
	if sc.Own == nil {
		return ""
	}
	in := workload.Of(sc)
	listeners := in.Ports()
	var out []string
	for _, s := range sc.Own.Inbound.Items() {
		if s.Port.Protocol == registry.UDP {
			continue
		}
		text := strconv.FormatUint(uint64(s.TargetPort), 10)
		i := slices.IndexFunc(listeners, func(p workload.Port) bool { return p.Port == s.TargetPort })
		if i >= 0 && in.Ingress(s.TargetPort) != nil {
			switch to := in.Target(listeners[i]); {
			case to.Path != "":
				text += "=" + to.Path
			case to.IP.IsValid():
				text += "=" + netip.AddrPortFrom(to.IP, uint16(to.Port)).String()
			}
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, " ")
}
