package config

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// destinationRule checks how clients treat one destination.
func (c *checker) destinationRule(dr *networking.DestinationRule) {
	names := make(map[string]bool, len(dr.Subsets))
	for i, s := range dr.Subsets {
		if names[s.Name] {
			c.errorf(at("spec.subsets", i)+".name", "the subset %s is defined twice: remove one of them", quote(s.Name))
		}
		names[s.Name] = true
	}
	for i, to := range dr.ExportTo {
		if dr.WorkloadSelector != nil && to != "." && to != c.object.Namespace {
			c.errorf(at("spec.exportTo", i), "with workloadSelector the rule is for workloads of its namespace: "+
				"remove it, or remove workloadSelector")
		}
	}
}

// trafficPolicy checks the policy of a destination or of a subset.
func (c *checker) trafficPolicy(path string, p *networking.TrafficPolicy) {
	if p.Tunnel != nil && p.ProxyProtocol != nil {
		c.errorf(path+".proxyProtocol", "only one of tunnel and proxyProtocol can be set")
	}
	ports := make(map[uint32]bool, len(p.PortLevelSettings))
	for i, s := range p.PortLevelSettings {
		path, port := at(path+".portLevelSettings", i), s.Port.GetNumber()
		if ports[port] {
			c.errorf(path+".port.number", "port %d has settings already: put them together", port)
		}
		ports[port] = true
		if s.Port == nil {
			c.port(path+".port.number", 0)
		}
		if len(others(s, "port")) == 0 {
			c.errorf(path, "nothing is set for the port: write loadBalancer, connectionPool, outlierDetection or tls, or remove it")
		}
	}
}

// consistentHash checks how requests stick to endpoints.
func (c *checker) consistentHash(path string, h *networking.LoadBalancerSettings_ConsistentHashLB) {
	source, bySource := h.HashKey.(*networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp)
	if h.HashKey == nil {
		c.errorf(path, "there is nothing to hash: write httpHeaderName, httpCookie, httpQueryParameterName or useSourceIp")
	} else if bySource && !source.UseSourceIp {
		c.errorf(path+".useSourceIp",
			"there is nothing to hash: set it to true, or use a header, cookie or query parameter")
	}
	if h.MinimumRingSize != 0 { //nolint:staticcheck // still read
		c.deprecated(path+".minimumRingSize", "ringHash: {minimumRingSize: …}", h.HashAlgorithm != nil)
	}
}

// warmup checks how new endpoints are given more traffic little by little.
func (c *checker) warmup(path string, l *networking.LoadBalancerSettings) {
	if l.Warmup == nil && l.WarmupDurationSecs == nil {
		return
	}
	if l.WarmupDurationSecs != nil {
		c.deprecated(path+".warmupDurationSecs", "warmup: {duration: …}", l.Warmup != nil)
	}
	instead := ""
	switch l.GetSimple() {
	case networking.LoadBalancerSettings_RANDOM, networking.LoadBalancerSettings_PASSTHROUGH:
		instead = l.GetSimple().String()
	}
	if l.GetConsistentHash() != nil {
		instead = "consistentHash"
	}
	if instead != "" {
		c.errorf(path, "a warm-up works with ROUND_ROBIN and LEAST_REQUEST only, not with %s", instead)
	}
	w := l.Warmup
	if w != nil && w.Duration == nil {
		c.errorf(path+".warmup.duration", "the time is missing")
	}
	if a := w.GetAggression(); a != nil && a.Value == 0 {
		c.errorf(path+".warmup.aggression", "the aggression must be greater than 0")
	}
}

// httpPool checks the limits of HTTP connections.
func (c *checker) httpPool(path string, h *networking.ConnectionPoolSettings_HTTPSettings) {
	if h.H2UpgradePolicy == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE && h.UseClientProtocol {
		c.errorf(path+".useClientProtocol",
			"the client's protocol cannot be kept and upgraded: remove useClientProtocol or h2UpgradePolicy")
	}
	if k := h.Http2KeepAlive; k != nil && (k.Interval == nil || k.Timeout == nil) {
		c.errorf(path+".http2KeepAlive", "set both interval and timeout")
	}
}

// outliers checks when endpoints are taken out for their errors.
func (c *checker) outliers(path string, o *networking.OutlierDetection) {
	if o.ConsecutiveErrors != 0 { //nolint:staticcheck // still read
		c.deprecated(path+".consecutiveErrors", "consecutive5xxErrors or consecutiveGatewayErrors",
			o.Consecutive_5XxErrors != nil || o.ConsecutiveGatewayErrors != nil)
	}
	if o.ConsecutiveLocalOriginFailures != nil && !o.SplitExternalLocalOriginErrors {
		c.warnf(path+".consecutiveLocalOriginFailures",
			"this has no effect without splitExternalLocalOriginErrors: set it to true")
	}
	for i, code := range o.OutlierDetectionHttpErrorCodes {
		if code < 100 || code > 599 {
			c.errorf(at(path+".outlierDetectionHttpErrorCodes", i), "%d is not an HTTP status", code)
		}
	}
}

// maxShares is how many rules there may be for localities, and how many localities a rule may share
// traffic between (each gets at least one percent).
const maxShares = 100

// locality checks how endpoints are preferred by where they are.
func (c *checker) locality(path string, l *networking.LocalityLoadBalancerSetting) {
	if len(l.Distribute) > 0 && (len(l.Failover) > 0 || len(l.FailoverPriority) > 0) {
		c.errorf(path, "distribute cannot be combined with failover or failoverPriority: remove one of them")
	}
	if n := len(l.Distribute); n > maxShares {
		c.errorf(path+".distribute", "there are at most %d rules, not %d", maxShares, n)
		return
	}
	var from []string
	for i, d := range l.Distribute {
		path := at(path+".distribute", i)
		if n := len(d.To); n > maxShares {
			c.errorf(path+".to", "traffic is shared between at most %d localities, not %d", maxShares, n)
			continue
		}
		var to []string
		var sum uint64
		for name, share := range d.To {
			to, sum = append(to, name), sum+uint64(share)
		}
		slices.Sort(to)
		for i, name := range to {
			if other := covered(name, to[:i]); other != "" {
				c.errorf(entry(path+".to", name), "%s and %s overlap: one locality gets one share", quote(other), quote(name))
			}
		}
		if sum != 100 {
			c.errorf(path+".to", "the shares must add up to 100, not %d", sum)
		}
		if other := covered(d.From, from); other != "" {
			c.errorf(path+".from", "%s is covered by the rule from %s too: one locality has one rule", quote(d.From),
				quote(other))
		}
		from = append(from, d.From)
	}
	seen := map[string]int{}
	for i, f := range l.Failover {
		p := at(path+".failover", i)
		if f.From == f.To && f.From != "" {
			c.errorf(p+".to", "a region cannot fail over to itself")
		}
		if j, twice := seen[f.From]; twice {
			c.errorf(p+".from", "%s fails over by %s.failover[%d] already: keep one of the two", quote(f.From), path, j)
		}
		seen[f.From] = i
	}
	for i, label := range l.FailoverPriority {
		if len(l.Failover) > 0 && slices.Contains(topologyLabels(), label) {
			c.errorf(at(path+".failoverPriority", i),
				"%s cannot be combined with failover: both order localities; remove one of the two", quote(label))
		}
	}
}

// covered returns the first pattern that has a locality in common with another one; empty: none.
func covered(pattern string, by []string) string {
	for _, b := range by {
		if overlap(pattern, b) {
			return b
		}
	}
	return ""
}

// overlap says whether some locality is covered by both patterns.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range min(len(as), len(bs)) {
		if as[i] == "*" || bs[i] == "*" {
			return true
		}
		if as[i] != bs[i] {
			return false
		}
	}
	return true
}

// topologyLabels are those that stand for an endpoint's region, zone and subzone.
// Source: istio.io, LocalityLoadBalancerSetting.failoverPriority.
func topologyLabels() []string {
	return []string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"}
}

// checkPriority is the rule for labels of failoverPriority, "key" or "key=value".
func checkPriority(label string) string {
	key, value, _ := strings.Cut(label, "=")
	return checkLabel(key, value)
}

// checkZonePriority is checkPriority without the places, which zoneAwareLbSetting orders itself.
func checkZonePriority(label string) string {
	if slices.Contains(topologyLabels(), label) {
		return quote(label) + " has no place here: regions are ordered by failover, and Envoy prefers its own zone"
	}
	return checkPriority(label)
}

// checkLocalityPattern is the rule for localities that may end with the wildcard "*".
func checkLocalityPattern(pattern string) string {
	if pattern == "*" {
		return ""
	}
	return checkLocality(strings.TrimSuffix(pattern, "/*"))
}

// checkRegion is the rule for the names of regions.
func checkRegion(region string) string {
	if region == "" || strings.ContainsAny(region, "/*") {
		return "want the name of a region, without zone and wildcard, not " + quote(region)
	}
	return ""
}
