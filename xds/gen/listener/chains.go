package listener

import (
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/internal/intern"
)

// chainLists are the interned parts of filter chains.
type chainLists struct {
	chains   intern.Lists[chainSpec]
	names    intern.Lists[string]
	weighted intern.Lists[weightedCluster]
	ports    intern.Lists[uint32]
}

// chainSet collects the filter chains of one listener, in order of precedence, with disjoint
// matches: Envoy refuses a listener in which two chains could take one connection.
type chainSet struct {
	lists *chainLists
	// rest says that a chain takes all that others do not, of any protocol and of plaintext HTTP.
	rest, restHTTP bool
	seen           map[chainKey]bool
	specs          []chainSpec
}

// chainKey is one connection that a chain takes.
type chainKey struct {
	subnet    netip.Prefix
	sni       string
	plainHTTP bool
}

func newChainSet(lists *chainLists) *chainSet { return &chainSet{lists: lists} }

// add adds a chain for connections to any of subnets by any of sni (no list: any), without those
// that an earlier chain takes. It says whether anything was left.
func (s *chainSet) add(c chainSpec, subnets []netip.Prefix, sni []string) bool {
	subnets, sni = cleanSubnets(subnets), cleanNames(sni)
	if len(subnets) == 0 && len(sni) == 0 {
		return s.addRest(c)
	}
	if len(subnets) == 0 {
		subnets = []netip.Prefix{{}}
	}
	if len(sni) == 0 {
		sni = []string{""}
	}
	if s.seen == nil {
		s.seen = map[chainKey]bool{}
	}
	added := false
	for _, subnet := range subnets {
		left := s.take(subnet, sni, c.match.plainHTTP)
		if len(left) == 0 {
			continue
		}
		c.match.subnet = subnet
		if left[0] != "" {
			c.match.sni = s.lists.names.Of(left)
		}
		s.specs = append(s.specs, c)
		added = true
	}
	return added
}

// addRest adds a chain without conditions, unless there is one.
func (s *chainSet) addRest(c chainSpec) bool {
	taken := &s.rest
	if c.match.plainHTTP {
		taken = &s.restHTTP
	}
	if *taken {
		return false
	}
	*taken = true
	s.specs = append(s.specs, c)
	return true
}

// take marks the names as taken for a subnet and returns those that were not.
func (s *chainSet) take(subnet netip.Prefix, names []string, plainHTTP bool) []string {
	left := make([]string, 0, len(names))
	for _, n := range names {
		k := chainKey{subnet, n, plainHTTP}
		if !s.seen[k] {
			s.seen[k] = true
			left = append(left, n)
		}
	}
	return left
}

// list is what was collected.
func (s *chainSet) list() *intern.List[chainSpec] { return s.lists.chains.Of(s.specs) }

// cleanSubnets masks, sorts and drops duplicates; nil when one of them is all addresses.
func cleanSubnets(in []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(in))
	for _, p := range in {
		if p.Bits() == 0 {
			return nil
		}
		out = append(out, p.Masked())
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// cleanNames sorts and drops duplicates; nil when one of them is every name.
func cleanNames(in []string) []string {
	if slices.Contains(in, "*") {
		return nil
	}
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}

// parseSubnets reads addresses with or without a prefix length; what is neither is left out, which
// validation reports.
func parseSubnets(in []string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(in))
	for _, s := range in {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p)
		} else if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}
