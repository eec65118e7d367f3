package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// The checks of this file are shared by kinds and by the mesh's settings.

// destination checks where a route leads.
func (c *checker) destination(path string, d *networking.Destination) {
	if d == nil {
		c.errorf(path, "the destination is missing")
		return
	}
	c.why(path+".host", checkHost(d.Host))
	if d.Subset != "" {
		c.why(path+".subset", checkSubset(d.Subset))
	}
	if d.Port != nil {
		c.port(path+".port.number", d.Port.Number)
	}
}

// weights checks the shares of the destinations at path.
func (c *checker) weights(path string, weights []int32) {
	// Envoy adds them up in 32 bits
	const limit = 1<<32 - 1
	var sum int64
	for _, w := range weights {
		sum += int64(w)
	}
	switch {
	case sum > limit:
		c.errorf(path, "the weights add up to %d, more than %d", sum, limit)
	case len(weights) > 1 && sum == 0:
		c.errorf(path, "all weights are 0, and nothing would be sent anywhere: give the destinations weights, such as 80 and 20")
	case len(weights) == 1 && weights[0] != 0 && weights[0] != 100:
		c.warnf(path+"[0].weight", "a single destination gets everything: the weight %d has no effect", weights[0])
	}
}

// subnets checks addresses and blocks of them.
func (c *checker) subnets(path string, subnets []string) {
	for i, s := range subnets {
		c.why(at(path, i), checkSubnet(s))
	}
}

// gateways checks a list of references to Gateways.
func (c *checker) gateways(path string, names []string) {
	c.unique(path, names)
	for i, g := range names {
		p := at(path, i)
		namespace, name, qualified := strings.Cut(g, "/")
		switch {
		case g == "":
			c.errorf(p, "the name of the Gateway is missing")
		case qualified:
			if namespace != "." {
				c.why(p, checkDNSLabel(namespace))
			}
			c.why(p, checkObjectName(name))
		default:
			c.why(p, checkObjectName(g))
		}
	}
}

// retries checks a policy of HTTP retries.
func (c *checker) retries(path string, r *networking.HTTPRetry) {
	if r == nil {
		return
	}
	c.duration(path+".perTryTimeout", r.PerTryTimeout)
	c.duration(path+".backoff", r.Backoff)
	if r.Attempts == 0 && (r.PerTryTimeout != nil || r.RetryOn != "" || r.Backoff != nil ||
		r.RetryRemoteLocalities != nil || r.RetryIgnorePreviousHosts != nil) {
		c.errorf(path+".attempts", "0 attempts switch retries off: remove the other fields, or set attempts")
	}
	if r.RetryOn == "" {
		return
	}
	for condition := range strings.SplitSeq(r.RetryOn, ",") {
		condition = strings.TrimSpace(condition)
		if code, err := strconv.Atoi(condition); err == nil {
			if code < 100 || code > 599 {
				c.errorf(path+".retryOn", "%d is not an HTTP status", code)
			}
			continue
		}
		if condition == "retriable-headers" {
			c.unsupported(path+".retryOn", "retriable-headers, for which there is no place to name the headers,",
				"write other conditions, such as HTTP statuses")
			continue
		}
		if !slices.Contains(retryConditions(), condition) {
			c.errorf(path+".retryOn", "unknown condition %s%s; write conditions of Envoy's and HTTP statuses, with commas between them",
				quote(condition), didYouMean(condition, retryConditions()))
			return
		}
	}
}

// retryConditions are Envoy's, but for retriable-headers: Istio's API cannot say which headers.
// Source:
// https://www.envoyproxy.io/docs/envoy/v1.40.0/configuration/http/http_filters/router_filter#x-envoy-retry-on
func retryConditions() []string {
	return []string{
		"5xx", "gateway-error", "reset", "reset-before-request", "connect-failure", "envoy-ratelimited", "retriable-4xx",
		"refused-stream", "retriable-status-codes", "http3-post-connect-failure",
		"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable",
	}
}

// keepalive checks TCP keepalive, which the kernel counts in seconds.
func (c *checker) keepalive(path string, k *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) {
	c.seconds(path+".time", k.GetTime())
	c.seconds(path+".interval", k.GetInterval())
}

// locality checks how endpoints are preferred by where they are.
func (c *checker) locality(path string, l *networking.LocalityLoadBalancerSetting) {
	if l == nil {
		return
	}
	if len(l.Distribute) > 0 && (len(l.Failover) > 0 || len(l.FailoverPriority) > 0) {
		c.errorf(path, "distribute cannot be combined with failover or failoverPriority: remove one of them")
	}
	if n := len(l.Distribute); n > maxShares {
		c.errorf(path+".distribute", "there are at most %d rules, not %d", maxShares, n)
		return
	}
	for i, d := range l.Distribute {
		c.distribute(at(path+".distribute", i), l.Distribute[:i], d)
	}
	for i, f := range l.Failover {
		p := at(path+".failover", i)
		c.failover(p, f)
		if j := slices.IndexFunc(l.Failover[:i],
			func(o *networking.LocalityLoadBalancerSetting_Failover) bool { return o.From == f.From }); j >= 0 {
			c.errorf(p+".from", "%s fails over by %s.failover[%d] already: keep one of the two", quote(f.From), path, j)
		}
	}
	c.unique(path+".failoverPriority", l.FailoverPriority)
	for i, label := range l.FailoverPriority {
		key, value, _ := strings.Cut(label, "=")
		c.why(at(path+".failoverPriority", i), checkLabel(key, value))
		if len(l.Failover) > 0 && slices.Contains(topologyLabels(), label) {
			c.errorf(at(path+".failoverPriority", i),
				"%s cannot be combined with failover: both order localities; remove one of the two", quote(label))
		}
	}
}

// topologyLabels are those that stand for an endpoint's region, zone and subzone.
// Source: istio.io, LocalityLoadBalancerSetting.failoverPriority.
func topologyLabels() []string {
	return []string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"}
}

// maxShares is how many rules there may be for localities, and how many localities a rule may share
// traffic between (each gets at least one percent).
const maxShares = 100

// distribute checks one rule of shares; before are the rules in front of it.
func (c *checker) distribute(path string, before []*networking.LocalityLoadBalancerSetting_Distribute,
	d *networking.LocalityLoadBalancerSetting_Distribute) {
	c.why(path+".from", checkLocalityPattern(d.From))
	for _, b := range before {
		if overlap(b.From, d.From) {
			c.errorf(path+".from", "%s is covered by the rule from %s too: one locality has one rule", quote(d.From),
				quote(b.From))
			break
		}
	}
	if n := len(d.To); n > maxShares {
		c.errorf(path+".to", "traffic is shared between at most %d localities, not %d", maxShares, n)
		return
	}
	var sum uint64
	targets := slices.Sorted(maps.Keys(d.To))
	for i, to := range targets {
		c.why(entry(path+".to", to), checkLocalityPattern(to))
		if d.To[to] == 0 || d.To[to] > 100 {
			c.errorf(entry(path+".to", to), "a share is from 1 to 100, not %d", d.To[to])
		}
		for _, other := range targets[:i] {
			if overlap(other, to) {
				c.errorf(entry(path+".to", to), "%s and %s overlap: one locality gets one share", quote(other),
					quote(to))
			}
		}
		sum += uint64(d.To[to])
	}
	if sum != 100 {
		c.errorf(path+".to", "the shares must add up to 100, not %d", sum)
	}
}

// failover checks one rule between regions.
func (c *checker) failover(path string, f *networking.LocalityLoadBalancerSetting_Failover) {
	for _, r := range []struct{ field, region string }{{".from", f.From}, {".to", f.To}} {
		if r.region == "" || strings.ContainsAny(r.region, "/*") {
			c.errorf(path+r.field, "want the name of a region, without zone and wildcard, not %s", quote(r.region))
		}
	}
	if f.From == f.To && f.From != "" {
		c.errorf(path+".to", "a region cannot fail over to itself")
	}
}

// checkLocalityPattern is the rule for localities that may end with the wildcard "*".
func checkLocalityPattern(pattern string) string {
	if pattern == "*" {
		return ""
	}
	return checkLocality(strings.TrimSuffix(pattern, "/*"))
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
