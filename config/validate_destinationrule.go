package config

import (
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// validateDestinationRule checks how clients treat one destination.
func validateDestinationRule(c *checker) {
	dr := spec[*networking.DestinationRule](c)
	c.why("spec.host", checkWildcardHost(dr.Host))
	c.exportTo("spec.exportTo", dr.ExportTo, false)
	c.trafficPolicy("spec.trafficPolicy", dr.TrafficPolicy)
	names := make(map[string]bool, len(dr.Subsets))
	for i, s := range dr.Subsets {
		path := at("spec.subsets", i)
		c.why(path+".name", checkSubset(s.Name))
		if names[s.Name] {
			c.errorf(path+".name", "the subset %s is defined twice: remove one of them", quote(s.Name))
		}
		names[s.Name] = true
		c.labels(path+".labels", s.Labels)
		c.trafficPolicy(path+".trafficPolicy", s.TrafficPolicy)
	}
}

// trafficPolicy checks the policy of a destination or of a subset.
func (c *checker) trafficPolicy(path string, p *networking.TrafficPolicy) {
	if p == nil {
		return
	}
	if proto.Size(p) == 0 {
		c.errorf(path, "nothing is set: write loadBalancer, connectionPool, outlierDetection or tls, or remove it")
	}
	c.loadBalancer(path+".loadBalancer", p.LoadBalancer)
	c.connectionPool(path+".connectionPool", p.ConnectionPool)
	c.outliers(path+".outlierDetection", p.OutlierDetection)
	c.clientTLS(path+".tls", p.Tls)
	c.retryBudget(path+".retryBudget", p.RetryBudget)
	ports := make(map[uint32]bool, len(p.PortLevelSettings))
	for i, s := range p.PortLevelSettings {
		path, port := at(path+".portLevelSettings", i), s.Port.GetNumber()
		if ports[port] {
			c.errorf(path+".port.number", "port %d has settings already: put them together", port)
		}
		ports[port] = true
		c.portPolicy(path, s)
	}
}

// portPolicy checks the policy of one port.
func (c *checker) portPolicy(path string, p *networking.TrafficPolicy_PortTrafficPolicy) {
	c.port(path+".port.number", p.Port.GetNumber())
	if p.LoadBalancer == nil && p.ConnectionPool == nil && p.OutlierDetection == nil && p.Tls == nil {
		c.errorf(path, "nothing is set for the port: write loadBalancer, connectionPool, outlierDetection or tls, or remove it")
	}
	c.loadBalancer(path+".loadBalancer", p.LoadBalancer)
	c.connectionPool(path+".connectionPool", p.ConnectionPool)
	c.outliers(path+".outlierDetection", p.OutlierDetection)
	c.clientTLS(path+".tls", p.Tls)
}

// loadBalancer checks how one of the endpoints is chosen.
func (c *checker) loadBalancer(path string, l *networking.LoadBalancerSettings) {
	if l == nil {
		return
	}
	if h := l.GetConsistentHash(); h != nil {
		c.consistentHash(path+".consistentHash", h)
	}
	c.locality(path+".localityLbSetting", l.LocalityLbSetting)
	c.warmup(path, l)
}

// consistentHash checks how requests stick to endpoints.
func (c *checker) consistentHash(path string, h *networking.LoadBalancerSettings_ConsistentHashLB) {
	switch k := h.HashKey.(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		c.why(path+".httpHeaderName", checkHeaderName(k.HttpHeaderName))
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		c.cookie(path+".httpCookie", k.HttpCookie)
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		if k.HttpQueryParameterName == "" {
			c.errorf(path+".httpQueryParameterName", "the name of the parameter is missing")
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp:
		if !k.UseSourceIp {
			c.errorf(path+".useSourceIp",
				"there is nothing to hash: set it to true, or use a header, cookie or query parameter")
		}
	default:
		c.errorf(path, "there is nothing to hash: write httpHeaderName, httpCookie, httpQueryParameterName or useSourceIp")
	}
	if h.MinimumRingSize != 0 { //nolint:staticcheck // still read
		c.deprecated(path+".minimumRingSize", "ringHash: {minimumRingSize: …}", h.HashAlgorithm != nil)
	}
}

// cookie checks the cookie that requests are hashed by.
func (c *checker) cookie(path string, k *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie) {
	if !isHeaderToken(k.Name) {
		c.errorf(path+".name", "%s is not the name of a cookie: use letters, digits and \"-\"", quote(k.Name))
	}
	c.why(path+".path", checkHeaderText(k.Path))
	if k.Ttl != nil && k.Ttl.AsDuration() != 0 {
		c.seconds(path+".ttl", k.Ttl)
	}
	for i, a := range k.Attributes {
		if !isHeaderToken(a.Name) {
			c.errorf(at(path+".attributes", i)+".name", "%s is not the name of an attribute", quote(a.Name))
		}
		c.why(at(path+".attributes", i)+".value", checkHeaderText(a.Value))
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
	switch l.GetSimple() {
	case networking.LoadBalancerSettings_RANDOM, networking.LoadBalancerSettings_PASSTHROUGH:
		c.errorf(path, "a warm-up works with ROUND_ROBIN and LEAST_REQUEST only, not with %s", l.GetSimple())
	}
	if l.GetConsistentHash() != nil {
		c.errorf(path, "a warm-up works with ROUND_ROBIN and LEAST_REQUEST only, not with consistentHash")
	}
	c.duration(path+".warmupDurationSecs", l.WarmupDurationSecs)
	w := l.Warmup
	if w == nil {
		return
	}
	if w.Duration == nil {
		c.errorf(path+".warmup.duration", "the time is missing")
	}
	c.duration(path+".warmup.duration", w.Duration)
	if w.MinimumPercent != nil {
		c.percent(path+".warmup.minimumPercent", w.MinimumPercent.Value)
	}
	if w.Aggression != nil && w.Aggression.Value < 1 {
		c.errorf(path+".warmup.aggression", "the aggression is at least 1, not %v", w.Aggression.Value)
	}
}

// connectionPool checks the limits of connections.
func (c *checker) connectionPool(path string, p *networking.ConnectionPoolSettings) {
	if p == nil {
		return
	}
	if p.Tcp == nil && p.Http == nil {
		c.errorf(path, "nothing is set: write tcp or http, or remove it")
	}
	if t := p.Tcp; t != nil {
		path := path + ".tcp"
		c.duration(path+".connectTimeout", t.ConnectTimeout)
		c.keepalive(path+".tcpKeepalive", t.TcpKeepalive)
		c.duration(path+".maxConnectionDuration", t.MaxConnectionDuration)
		c.durationOrZero(path+".idleTimeout", t.IdleTimeout)
	}
	if h := p.Http; h != nil {
		c.httpPool(path+".http", h)
	}
}

func (c *checker) httpPool(path string, h *networking.ConnectionPoolSettings_HTTPSettings) {
	c.durationOrZero(path+".idleTimeout", h.IdleTimeout)
	if h.H2UpgradePolicy == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE && h.UseClientProtocol {
		c.errorf(path+".useClientProtocol",
			"the client's protocol cannot be kept and upgraded: remove useClientProtocol or h2UpgradePolicy")
	}
	if k := h.Http2KeepAlive; k != nil {
		c.duration(path+".http2KeepAlive.interval", k.Interval)
		c.duration(path+".http2KeepAlive.timeout", k.Timeout)
		if k.Interval == nil || k.Timeout == nil {
			c.errorf(path+".http2KeepAlive", "set both interval and timeout")
		}
	}
}

// outliers checks when endpoints are taken out for their errors.
func (c *checker) outliers(path string, o *networking.OutlierDetection) {
	if o == nil {
		return
	}
	if n := o.ConsecutiveErrors; n != 0 { //nolint:staticcheck // still read
		c.deprecated(path+".consecutiveErrors", "consecutive5xxErrors or consecutiveGatewayErrors",
			o.Consecutive_5XxErrors != nil || o.ConsecutiveGatewayErrors != nil)
	}
	c.duration(path+".interval", o.Interval)
	c.duration(path+".baseEjectionTime", o.BaseEjectionTime)
	c.percent(path+".maxEjectionPercent", float64(o.MaxEjectionPercent))
	c.percent(path+".minHealthPercent", float64(o.MinHealthPercent))
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

// retryBudget checks how many retries may be under way.
func (c *checker) retryBudget(path string, b *networking.TrafficPolicy_RetryBudget) {
	if b == nil {
		return
	}
	if b.Percent != nil {
		c.percent(path+".percent", b.Percent.Value)
	}
	c.durationOrZero(path+".budgetInterval", b.BudgetInterval)
}
