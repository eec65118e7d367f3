package agent

import (
	"unique"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/workload"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// ProxyConfigType is how the mesh's trusted authorities reach agents. Source: Istio,
// pkg/model/xds.go.
const ProxyConfigType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"

// ProxyConfigName is the name of the one resource of type ProxyConfigType.
const ProxyConfigName = "trust-bundle"

// TrustBundles makes the resource that holds the trusted authorities, resource.BypassedPorts where
// there are any, and the settings of the proxy that its agent applies. It depends on nothing else: a
// revocation sends none anew.
type TrustBundles struct {
	roots intern.Lists[string]
	modes intern.Lists[push.PortMode]
}

// bundleIn is everything that the resource depends on.
type bundleIn struct {
	roots       *intern.List[string]
	bypassed    string
	config      *meshconfig.ProxyConfig
	application string // where the agent reads the application's metrics; empty: nowhere
}

// Plans implements envoy.Kind. There is nothing without a certificate authority, a group and settings.
func (b *TrustBundles) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	if sc.Trust == nil && sc.Probe == (unique.Handle[string]{}) && sc.AgentConfig == nil {
		return nil, nil
	}
	in := bundleIn{config: sc.AgentConfig}
	if sc.Application != "" {
		if merge := sc.Mesh.Config.GetEnablePrometheusMerge(); merge == nil || merge.GetValue() {
			in.application = sc.Application
		}
	}
	if sc.Trust != nil {
		in.roots = b.roots.Of(sc.Trust.Roots)
	}
	if sc.Interception == push.None && sc.Own != nil {
		modes := push.PeerModesOf(sc.PeerAuthentication.Items(), sc.Mesh.Config.GetRootNamespace(), &b.modes)
		in.bypassed = workload.BypassOf(sc, modes).Ports
	}
	return in, nil
}

// Layer implements envoy.Plan.
func (in bundleIn) Layer() *envoy.Layer {
	r := resource.New(ProxyConfigType, ProxyConfigName, nil, func() []byte {
		c := &meshconfig.ProxyConfig{ProxyMetadata: map[string]string{}}
		proto.Merge(c, in.config)
		c.CaCertificatesPem = in.roots.Items()
		for name, value := range map[string]string{
			resource.BypassedPorts: in.bypassed, resource.ApplicationMetrics: in.application,
		} {
			if value != "" {
				c.ProxyMetadata[name] = value
			}
		}
		return resource.Encode(c)
	})
	return envoy.NewLayer(r)
}
