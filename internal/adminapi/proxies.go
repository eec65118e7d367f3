package adminapi

import (
	"fmt"
	"path"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

// Proxies shows the proxies of an xDS server to operators.
type Proxies struct{ Server *xds.Server }

var _ connectedProxies = Proxies{}

// Status returns every connected proxy.
func (p Proxies) Status() []admin.ProxyStatus { return proxyList(p.Server.Proxies()) }

// proxyList names each proxy by its short name where that is its own.
func proxyList(connected []xds.ProxyStatus) []admin.ProxyStatus {
	names := map[string]int{} // how many proxies go by a short name
	for _, p := range connected {
		names[p.Node.ID]++
	}
	out := make([]admin.ProxyStatus, len(connected))
	for i, p := range connected {
		out[i] = proxyStatus(p)
		if names[p.Node.ID] == 1 {
			out[i].ID = p.Node.ID
		}
	}
	return out
}

func proxyStatus(p xds.ProxyStatus) admin.ProxyStatus {
	out := admin.ProxyStatus{ID: p.ID, Node: p.ID, Kind: "sidecar", Namespace: p.Node.Namespace, Version: p.Version,
		Agent: p.Agent, Envoy: p.Envoy, Peer: p.Peer,
		Connected: p.Connected, Identity: p.Who.Identity.String(), Serial: p.Who.Serial, Expires: p.Who.Expires, Bundle: p.Bundle, Delta: p.Delta, Types: []admin.TypeStatus{}}
	if p.Node.Type == push.Router {
		out.Kind = "router"
	}
	for _, t := range p.Types {
		out.Types = append(out.Types, typeStatus(t))
	}
	out.Reader = len(p.Types) > 0 && !slices.ContainsFunc(p.Types, func(t xds.TypeStatus) bool { return !t.Objects })
	return out
}

func typeStatus(t xds.TypeStatus) admin.TypeStatus {
	out := admin.TypeStatus{Type: shortType(t.TypeURL), Resources: t.Resources, Acknowledged: t.Acknowledged,
		AcknowledgedAt: t.AcknowledgedAt,
		Target:         t.Target, Latest: t.Latest, InFlight: t.Pending, Rejections: t.Rejections, Everything: t.Everything}
	if t.Objects {
		out.Objects = path.Base(t.TypeURL) // networking.istio.io/v1/VirtualService, core/v1alpha1/MeshConfig
	}
	if !t.Everything {
		out.Subscribed = t.Subscribed
	}
	for _, r := range t.Rejected {
		out.Rejected = append(out.Rejected, admin.Rejection{Time: r.At, Resource: r.Name, Version: r.Version,
			Error: r.Message})
	}
	if t.Rejection != nil && len(out.Rejected) == 0 { // the culprit is still looked for
		out.Rejected = []admin.Rejection{{Error: t.Rejection.Message}}
	}
	return out
}

// Dump returns the resources of a proxy, with the bodies in JSON. Errors: admin.ErrNotFound.
func (p Proxies) Dump(id string) (admin.Dump, error) {
	types, err := p.Server.Dump(id)
	if err != nil {
		return admin.Dump{}, admin.NewError(admin.ErrNotFound, err.Error()+": \"ashorectl status\" lists them")
	}
	out := admin.Dump{Proxy: id}
	for _, t := range types {
		shown := admin.DumpType{Type: shortType(t.TypeURL), TypeURL: t.TypeURL, Resources: []admin.DumpResource{}}
		for _, r := range t.Resources {
			body, size, err := anyJSON(t.TypeURL, r.Name, r.Any)
			if err != nil {
				return admin.Dump{}, fmt.Errorf("show %s: %w", r.Name, err)
			}
			shown.Resources = append(shown.Resources, admin.DumpResource{Name: r.Name, Version: r.Version, Bytes: size,
				Body: body})
		}
		out.Types = append(out.Types, shown)
	}
	return out, nil
}

// anyJSON is an encoded Any in protobuf's JSON, and the size of what is in it.
func anyJSON(typeURL, name string, encoded []byte) ([]byte, int, error) {
	var value []byte
	err := eachField(encoded, func(num protowire.Number, v []byte) error {
		if num == 2 { // google.protobuf.Any.value
			value = v
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	body, err := bodyJSON(typeURL, name, value)
	return body, len(value), err
}
