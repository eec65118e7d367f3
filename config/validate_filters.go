package config

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// fault checks the faults that a route injects.
func (c *checker) fault(path string, f *networking.HTTPFaultInjection) {
	if f == nil {
		return
	}
	if f.Delay == nil && f.Abort == nil {
		c.errorf(path, "write delay, abort or both")
	}
	if f.Delay != nil {
		c.delay(path+".delay", f.Delay)
	}
	if f.Abort != nil {
		c.abort(path+".abort", f.Abort)
	}
}

// delay checks how long requests are kept back.
func (c *checker) delay(path string, d *networking.HTTPFaultInjection_Delay) {
	if p := d.Percent; p != 0 { //nolint:staticcheck // still read
		c.percent(path+".percent", float64(p))
		c.deprecated(path+".percent", "percentage: {value: …}", d.Percentage != nil)
	}
	if d.Percent == 0 { //nolint:staticcheck // still read
		c.share(path, d.Percentage)
	}
	switch t := d.HttpDelayType.(type) {
	case *networking.HTTPFaultInjection_Delay_FixedDelay:
		c.duration(path+".fixedDelay", t.FixedDelay)
	case *networking.HTTPFaultInjection_Delay_ExponentialDelay: // unsupported
	default:
		c.errorf(path+".fixedDelay", "the time of the delay is missing")
	}
}

// abort checks what requests are answered with.
func (c *checker) abort(path string, a *networking.HTTPFaultInjection_Abort) {
	c.share(path, a.Percentage)
	switch t := a.ErrorType.(type) {
	case *networking.HTTPFaultInjection_Abort_HttpStatus:
		if t.HttpStatus < 200 || t.HttpStatus > 599 {
			c.errorf(path+".httpStatus", "the status is from 200 to 599, not %d", t.HttpStatus)
		}
	case *networking.HTTPFaultInjection_Abort_GrpcStatus:
		if !slices.Contains(grpcStatuses(), t.GrpcStatus) {
			c.errorf(path+".grpcStatus", "unknown status %s%s", quote(t.GrpcStatus),
				meantOrOneOf(t.GrpcStatus, grpcStatuses()))
		}
	case *networking.HTTPFaultInjection_Abort_Http2Error: // unsupported
	default:
		c.errorf(path, "write httpStatus or grpcStatus")
	}
}

// share checks the part of the requests that a fault is for; unset means none.
// Source: istio.io, HTTPFaultInjection.
func (c *checker) share(path string, p *networking.Percent) {
	if p == nil {
		c.warnf(path, "without percentage no request is concerned: write percentage: {value: 100} for all")
		return
	}
	c.percent(path+".percentage.value", p.Value)
}

// grpcStatuses are the names of gRPC's status codes, in the order of their numbers.
// Source: https://github.com/grpc/grpc/blob/master/doc/statuscodes.md
func grpcStatuses() []string {
	return []string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
		"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
		"DATA_LOSS", "UNAUTHENTICATED",
	}
}

// cors checks what pages of other origins may do.
func (c *checker) cors(path string, p *networking.CorsPolicy) {
	if p == nil {
		return
	}
	if len(p.AllowOrigin) > 0 { //nolint:staticcheck // still read
		c.deprecated(path+".allowOrigin", "allowOrigins: [{exact: …}]", len(p.AllowOrigins) > 0)
	}
	for i, o := range p.AllowOrigins {
		c.stringMatch(at(path+".allowOrigins", i), o)
	}
	for i, m := range p.AllowMethods {
		if !slices.Contains(corsMethods(), m) {
			c.errorf(at(path+".allowMethods", i), "unknown method %s%s", quote(m), meantOrOneOf(m, corsMethods()))
		}
	}
	for i, h := range p.AllowHeaders {
		if h != "*" {
			c.why(at(path+".allowHeaders", i), checkHeaderName(h))
		}
	}
	for i, h := range p.ExposeHeaders {
		if h != "*" {
			c.why(at(path+".exposeHeaders", i), checkHeaderName(h))
		}
	}
	if p.MaxAge != nil && p.MaxAge.AsDuration() != 0 {
		c.seconds(path+".maxAge", p.MaxAge)
	}
	anyOrigin := slices.ContainsFunc(p.AllowOrigins, func(m *networking.StringMatch) bool {
		return m.GetExact() == "*" || m.GetRegex() == ".*"
	})
	if anyOrigin && p.AllowCredentials.GetValue() {
		c.warnf(path+".allowCredentials", "pages of every origin may act with the user's credentials: name the origins")
	}
}

// corsMethods are those that allowMethods may name. Source: Istio, pkg/config/validation, which
// takes no "*".
func corsMethods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"}
}

// headers checks how headers are changed; authority is what the route rewrites the host to, or
// empty.
func (c *checker) headers(path string, h *networking.Headers, authority string) {
	if h == nil {
		return
	}
	c.changedHeaders(path+".request", h.Request, checkRequestHeader)
	c.changedHeaders(path+".response", h.Response, checkChangedHeader)
	for _, m := range []struct {
		path   string
		values map[string]string
	}{{path + ".request.set", h.Request.GetSet()}, {path + ".request.add", h.Request.GetAdd()}} {
		for _, name := range slices.Sorted(maps.Keys(m.values)) {
			if !isAuthority(name) {
				continue
			}
			if authority != "" {
				c.errorf(entry(m.path, name), "the host is rewritten to %s already: keep one of the two",
					quote(authority))
			}
			authority = m.values[name]
			c.authority(entry(m.path, name), authority)
		}
	}
}

// changedHeaders checks the changes of one direction; check is the rule for names.
func (c *checker) changedHeaders(path string, h *networking.Headers_HeaderOperations, check func(name string) string) {
	if h == nil {
		return
	}
	for _, m := range []struct {
		path   string
		values map[string]string
	}{{path + ".set", h.Set}, {path + ".add", h.Add}} {
		seen := make(map[string]string, len(m.values))
		for _, name := range slices.Sorted(maps.Keys(m.values)) {
			p, value := entry(m.path, name), m.values[name]
			if other, twice := seen[strings.ToLower(name)]; twice {
				c.errorf(p, "%s and %s are one header: keep one of them", quote(other), quote(name))
			}
			seen[strings.ToLower(name)] = name
			c.why(p, check(name))
			c.why(p, checkHeaderText(value))
			if !isAuthority(name) {
				c.why(p, checkFormat(value))
			}
		}
	}
	for i, name := range h.Remove {
		c.why(at(path+".remove", i), checkChangedHeader(name))
	}
}

// isAuthority says that a header is the host of a request. Setting it rewrites the host.
func isAuthority(name string) bool { return strings.EqualFold(name, "host") || name == ":authority" }

// checkRequestHeader is the rule for headers of requests that routes may set.
func checkRequestHeader(name string) string {
	if isAuthority(name) {
		return ""
	}
	return checkChangedHeader(name)
}

// checkChangedHeader is the rule for headers that routes may change: Envoy refuses to touch those
// that are parts of the request.
func checkChangedHeader(name string) string {
	if isAuthority(name) || strings.HasPrefix(name, ":") {
		return quote(name) + " cannot be changed here: it is part of the request"
	}
	return checkHeaderName(name)
}

// checkHeaderName is the rule for the names of headers.
func checkHeaderName(name string) string {
	if name == "" {
		return "the name of the header is missing"
	}
	if !isHeaderToken(name) {
		return quote(name) + " is not the name of a header: use letters, digits and \"-\""
	}
	return ""
}

// isHeaderToken says whether s is a token of HTTP.
// Source: https://www.rfc-editor.org/rfc/rfc9110#name-tokens
func isHeaderToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i], true) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

// checkHeaderText is the rule for texts that become part of a header.
func checkHeaderText(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\t' && isControl(r) }) {
		return "the text holds line ends or control characters"
	}
	return ""
}
