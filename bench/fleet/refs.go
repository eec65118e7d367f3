package fleet

import (
	"hash/maphash"
	"sync"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// edsCluster is Cluster.DiscoveryType EDS.
const edsCluster = 3

// refs remembers what a resource refers to by its content, so that a fleet parses each distinct
// resource once. Safe for concurrent use.
type refs struct {
	seed maphash.Seed
	m    sync.Map // hash -> []string
}

func newRefs() *refs { return &refs{seed: maphash.MakeSeed()} }

// of returns the names that a resource of typeURL makes Envoy ask for, and their type.
func (r *refs) of(typeURL string, value []byte) (child string, names []string) {
	switch typeURL {
	case cdsType:
		return edsType, r.get(value, edsName)
	case ldsType:
		return rdsType, r.get(value, rdsNames)
	default:
		return "", nil
	}
}

func (r *refs) get(value []byte, f func([]byte) []string) []string {
	h := maphash.Bytes(r.seed, value)
	if v, ok := r.m.Load(h); ok {
		names, _ := v.([]string)
		return names
	}
	names := f(value)
	r.m.Store(h, names)
	return names
}

// edsName is the load assignment that a cluster needs; none when it is not an EDS cluster.
func edsName(value []byte) []string {
	var name, service string
	var typ uint64
	fields(value, func(num protowire.Number, t protowire.Type, v uint64, d []byte) {
		switch {
		case num == 1:
			name = string(d)
		case num == 2 && t == protowire.VarintType:
			typ = v
		case num == 3:
			service = string(bytesField(d, 2))
		}
	})
	switch {
	case typ != edsCluster:
		return nil
	case service != "":
		return []string{service}
	default:
		return []string{name}
	}
}

// rdsNames are the route configurations that a listener names.
func rdsNames(value []byte) []string {
	var l listenerv3.Listener
	if proto.Unmarshal(value, &l) != nil {
		return nil
	}
	chains := l.GetFilterChains()
	if d := l.GetDefaultFilterChain(); d != nil {
		chains = append(chains, d)
	}
	var out []string
	for _, c := range chains {
		for _, f := range c.GetFilters() {
			var m hcmv3.HttpConnectionManager
			if f.GetTypedConfig().MessageIs(&m) && f.GetTypedConfig().UnmarshalTo(&m) == nil && m.GetRds() != nil {
				out = append(out, m.GetRds().GetRouteConfigName())
			}
		}
	}
	return out
}
