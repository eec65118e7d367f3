package fleet

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
)

// ref is a resource that another one makes Envoy ask for.
type ref struct{ typeURL, name string }

// refs remembers what a resource refers to by its content, so that a fleet parses each distinct
// resource once. Safe for concurrent use.
type refs struct {
	seed maphash.Seed
	m    sync.Map // hash -> []ref
}

func newRefs() *refs { return &refs{seed: maphash.MakeSeed()} }

// of returns the resources that a resource of typeURL makes Envoy ask for.
func (r *refs) of(typeURL string, value []byte) []ref {
	read := assignmentOf
	switch typeURL {
	case cdsType:
	case ldsType:
		read = listenerRefs
	default:
		return nil
	}
	h := maphash.Bytes(r.seed, value)
	v, ok := r.m.Load(h)
	if !ok {
		v, _ = r.m.LoadOrStore(h, read(value))
	}
	names, _ := v.([]ref)
	return names
}

// assignmentOf is the load assignment that a cluster needs; none when it is not an EDS cluster.
func assignmentOf(value []byte) []ref {
	var c clusterv3.Cluster
	if proto.Unmarshal(value, &c) != nil || c.GetType() != clusterv3.Cluster_EDS {
		return nil
	}
	return []ref{{EDS, cmp.Or(c.GetEdsClusterConfig().GetServiceName(), c.GetName())}}
}

// listenerRefs are the route configurations and the filters that a listener names.
func listenerRefs(value []byte) []ref {
	var l listenerv3.Listener
	if proto.Unmarshal(value, &l) != nil {
		return nil
	}
	chains := l.GetFilterChains()
	if d := l.GetDefaultFilterChain(); d != nil {
		chains = append(chains, d)
	}
	var out []ref
	add := func(typeURL, name string) {
		if r := (ref{typeURL, name}); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	for _, c := range chains {
		for _, f := range c.GetFilters() {
			var m hcmv3.HttpConnectionManager
			switch {
			case f.GetConfigDiscovery() != nil:
				add(ecdsType, f.GetName())
			case f.GetTypedConfig().MessageIs(&m) && f.GetTypedConfig().UnmarshalTo(&m) == nil:
				managerRefs(&m, add)
			}
		}
	}
	return out
}

// managerRefs adds what a connection manager names.
func managerRefs(m *hcmv3.HttpConnectionManager, add func(typeURL, name string)) {
	if m.GetRds() != nil {
		add(rdsType, m.GetRds().GetRouteConfigName())
	}
	for _, f := range m.GetHttpFilters() {
		if f.GetConfigDiscovery() != nil {
			add(ecdsType, f.GetName())
		}
	}
}
