package destination

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Index says for which destinations more than load assignments depends on endpoints. Immutable.
type Index struct {
	// DNS are those whose names the proxy resolves: their clusters carry the endpoints.
	DNS []registry.Key
	// Ordered says that the endpoints of some of DNS are ordered by the client's place.
	Ordered bool
	// Dynamic says that a proxy resolves the hosts that clients name.
	Dynamic bool
	// headless are those without an address of their own, addressless those that have not even an
	// allocated one.
	headless, addressless []registry.Key
}

// Headless are those that clients find by the addresses of their endpoints. capturesDNS says that
// the proxy has listeners at allocated addresses.
func (x *Index) Headless(capturesDNS bool) []registry.Key {
	if capturesDNS {
		return x.addressless
	}
	return x.headless
}

// IsHeadless says whether a service is one of Index.Headless.
func IsHeadless(s *registry.Service, capturesDNS bool) bool {
	return len(s.Addresses) == 0 && (len(s.AutoAddresses) == 0 || !capturesDNS)
}

// Indexes makes an Index for each list of destinations.
type Indexes struct {
	all       *memo.Func[indexIn, Index]
	endpoints intern.Lists[*registry.EndpointList]
}

type indexIn struct {
	destinations *push.Destinations
	mesh         *push.Mesh
}

// NewIndexes makes an Indexes.
func NewIndexes() *Indexes { return &Indexes{all: memo.New(newIndex)} }

// Of is the index of a scope's destinations.
func (x *Indexes) Of(sc *push.Scope) *Index { return x.all.Get(indexIn{sc.Destinations, sc.Mesh}) }

// Endpoints lists the endpoints of services, a nil list where a service has none.
func (x *Indexes) Endpoints(keys []registry.Key, sc *push.Scope) *intern.List[*registry.EndpointList] {
	out := make([]*registry.EndpointList, len(keys))
	for i, k := range keys {
		out[i] = sc.Endpoints.At(k)
	}
	return x.endpoints.Of(out)
}

func newIndex(in indexIn) *Index {
	x := &Index{}
	for _, d := range in.destinations.Items() {
		if IsHeadless(d.Service, false) {
			x.headless = append(x.headless, d.Service.Key)
		}
		if IsHeadless(d.Service, true) {
			x.addressless = append(x.addressless, d.Service.Key)
		}
		x.Dynamic = x.Dynamic || d.Service.Resolution == registry.DynamicDNS
		if !IsDNS(d.Service.Resolution) {
			continue
		}
		x.DNS = append(x.DNS, d.Service.Key)
		EachCluster(d, func(port uint32, s *networking.Subset, _ bool) {
			x.Ordered = x.Ordered || PolicyFor(d.Rule, s, port).OrDefaults(d.Service, in.mesh).Order(in.mesh) != (OrderRule{})
		})
	}
	return x
}
