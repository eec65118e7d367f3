package destination

import (
	"cmp"
	"slices"
	"strings"
	"unique"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// The labels that stand for an endpoint's place.
// Source: istio.io, LocalityLoadBalancerSetting.failoverPriority.
const (
	regionLabel  = "topology.kubernetes.io/region"
	zoneLabel    = "topology.kubernetes.io/zone"
	subZoneLabel = "topology.istio.io/subzone"
)

// Client is where a proxy is: what the order of endpoints may depend on. Comparable.
type Client struct {
	Locality registry.Locality
	network  string
	labels   *intern.List[push.Label]
}

// ClientOf is where the proxy of a scope is.
func ClientOf(sc *push.Scope) Client {
	return Client{Locality: sc.Locality, network: sc.Network, labels: sc.FailoverLabels}
}

// label is the client's value of a label; the place that is known goes before a label that says it.
func (c Client) label(key string) string {
	if v := place(key, c.Locality, c.network); v != "" {
		return v
	}
	i, ok := slices.BinarySearchFunc(c.labels.Items(), key,
		func(l push.Label, k string) int { return cmp.Compare(l.Key, k) })
	if !ok {
		return ""
	}
	return c.labels.Items()[i].Value
}

// place is the part of a place that a label stands for; empty for other labels.
func place(key string, l registry.Locality, network string) string {
	switch key {
	case regionLabel:
		return l.Region
	case zoneLabel:
		return l.Zone
	case subZoneLabel:
		return l.SubZone
	case registry.NetworkLabel:
		return network
	default:
		return ""
	}
}

// OrderRule is the rule by which the endpoints of a cluster are ordered; the zero value: none.
type OrderRule struct {
	Setting *networking.LocalityLoadBalancerSetting
	// Zones, when not nil, is used instead: endpoints are ordered by region, and Envoy prefers the
	// client's zone.
	Zones *networking.ZoneAwareLoadBalancerSetting
	// Distribution, when not empty, is used instead of both.
	Distribution registry.Distribution
	// Failover says that endpoints get priorities: without outlier detection Envoy would never
	// leave the first one.
	Failover bool
}

// Order is the rule that a policy sets, else the mesh's; none where it would have no effect.
// Source: istio.io, "Locality Load Balancing"; a DestinationRule's setting replaces the mesh's as a
// whole.
func (p Policy) Order(m *push.Mesh) OrderRule {
	if z := p.Zones(m); z != nil {
		if z.Enabled != nil && !z.Enabled.Value {
			return OrderRule{}
		}
		return OrderRule{Zones: z, Failover: true}
	}
	if p.Distribution != "" {
		return OrderRule{Distribution: p.Distribution, Failover: true}
	}
	s := p.Balance.GetLocalityLbSetting()
	if s == nil {
		s = m.Config.GetLocalityLbSetting()
	}
	if s == nil || s.Enabled != nil && !s.Enabled.Value {
		return OrderRule{}
	}
	if len(s.Distribute) > 0 {
		return OrderRule{Setting: s}
	}
	if p.Outlier == nil {
		return OrderRule{}
	}
	return OrderRule{Setting: s, Failover: true}
}

// Zones is the setting for zones, which a policy or the mesh sets; nil: localityLbSetting holds.
// Source: Istio, pilot/pkg/networking/core/loadbalancer, GetEffectiveLbSetting.
func (p Policy) Zones(m *push.Mesh) *networking.ZoneAwareLoadBalancerSetting {
	z := p.Balance.GetZoneAwareLbSetting()
	if z != nil || p.Balance.GetLocalityLbSetting() != nil || p.Distribution != "" {
		return z
	}
	return m.Config.GetZoneAwareLbSetting()
}

// labels are those of failoverPriority.
func (r OrderRule) labels() []string {
	switch {
	case r.Distribution == registry.PreferSameNode:
		return []string{registry.NetworkLabel, regionLabel, zoneLabel, subZoneLabel}
	case r.Distribution != "":
		return []string{registry.NetworkLabel, regionLabel, zoneLabel}
	case r.Zones != nil:
		return r.Zones.FailoverPriority
	}
	return r.Setting.GetFailoverPriority()
}

// Weighted says that Envoy has to weigh localities, not only endpoints.
func (r OrderRule) Weighted() bool {
	return r.Distribution != "" || len(r.Setting.GetDistribute())+len(r.Setting.GetFailover())+
		len(r.Setting.GetFailoverPriority()) > 0
}

// Ordering is a rule as it holds for one client.
type Ordering struct {
	OrderRule
	Client Client
}

// Order is an Ordering that is cheap to compare. The zero value: endpoints are not ordered.
type Order struct{ handle unique.Handle[Ordering] }

// OrderOf is how a client orders endpoints by a rule.
func OrderOf(r OrderRule, c Client) Order {
	if r == (OrderRule{}) {
		return Order{}
	}
	return Order{unique.Make(Ordering{r, c})}
}

// Ordering is the ordering; nil: there is none.
func (o Order) Ordering() *Ordering {
	if o == (Order{}) {
		return nil
	}
	v := o.handle.Value()
	return &v
}

// Distribution is the share of each of a client's destinations; nil when none is set for where it
// is.
func (o *Ordering) Distribution() map[string]uint32 {
	for _, d := range o.Setting.GetDistribute() {
		if MatchesLocality(d.From, o.Client.Locality) {
			return d.To
		}
	}
	return nil
}

// MatchesLocality says whether l is in the place that pattern names: "region/zone/subzone", from
// the right parts may be missing or "*".
func MatchesLocality(pattern string, l registry.Locality) bool {
	if pattern == "*" {
		return true
	}
	want := registry.ParseLocality(pattern)
	part := func(want, have string) bool { return want == "" || want == "*" || want == have }
	return part(want.Region, l.Region) && part(want.Zone, l.Zone) && part(want.SubZone, l.SubZone)
}

// Priority is how far an endpoint is from the client: smaller is nearer, gaps do not matter.
func (o *Ordering) Priority(ep *registry.Endpoint) int {
	p := o.mismatch(ep)
	switch {
	case o.Zones != nil:
		return p*(farthest+1) + o.regionDistance(ep.Locality.Region)
	case len(o.labels()) == 0:
		return o.distance(ep.Locality)
	case len(o.Setting.GetFailover()) == 0:
		return p
	}
	return p*(farthest+1) + o.distance(ep.Locality)
}

// regionDistance is 0 in the same region, 1 in the one that it fails over to, and 2 elsewhere.
func (o *Ordering) regionDistance(region string) int {
	mine := o.Client.Locality.Region
	if region == mine {
		return 0
	}
	i := slices.IndexFunc(o.Zones.Failover, func(f *networking.ZoneAwareLoadBalancerSetting_Failover) bool {
		return f.From == mine
	})
	if i >= 0 && o.Zones.Failover[i].To == region {
		return 1
	}
	return 2
}

// mismatch is zero when all labels of failoverPriority match, else the greater the earlier the
// first one stands that does not.
func (o *Ordering) mismatch(ep *registry.Endpoint) int {
	labels := o.labels()
	for i, want := range labels {
		key, value, fixed := strings.Cut(want, "=")
		if !fixed {
			value = o.Client.label(key)
		}
		have := cmp.Or(place(key, ep.Locality, ep.Network), ep.Labels[key])
		if value != have {
			return len(labels) - i
		}
	}
	return 0
}

// farthest is the greatest distance.
const farthest = 4

// distance is 0 in the same sub-zone, 1 in the same zone, 2 in the same region, 3 in another one,
// and 4 in one that is not where the client's region fails over to.
func (o *Ordering) distance(l registry.Locality) int {
	mine := o.Client.Locality
	switch {
	case l == mine:
		return 0
	case l.Region == mine.Region && l.Zone == mine.Zone:
		return 1
	case l.Region == mine.Region:
		return 2
	}
	for _, f := range o.Setting.Failover {
		if f.From == mine.Region && f.To != l.Region {
			return farthest
		}
		if f.From == mine.Region {
			break
		}
	}
	return 3
}
