package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// httpRoute checks that a route does exactly one thing, and nothing that does not go with it.
func (c *checker) httpRoute(path string, r *networking.HTTPRoute) {
	c.oneAuthority(path+".headers", r.Headers, r.GetRewrite().GetAuthority())
	c.mirrors(path, r)
	if r.Delegate != nil {
		if c.delegate {
			c.errorf(path+".delegate", "a delegate cannot delegate to another one: write the routes here")
		}
		c.refuse(path, present(r, "route", "redirect"), "the routes are those of the delegate: remove it, or remove delegate")
		return
	}
	switch actions := present(r, "route", "redirect", "directResponse"); {
	case len(actions) == 0:
		c.errorf(path, "the route leads nowhere: write route, redirect or directResponse")
		return
	case len(actions) > 1:
		c.errorf(path+"."+actions[1], "a route does one thing: remove one of %s", strings.Join(actions, " and "))
	}
	if len(r.Route) > 0 {
		routeDestinations(c, path+".route", r.Route)
		return
	}
	for _, field := range present(r, "rewrite", "fault", "timeout", "retries", "mirror", "mirrors") {
		c.errorf(path+"."+field, "%s works only together with route: remove it", field)
	}
	if r.Headers.GetRequest() != nil {
		c.warnf(path+".headers.request", "the request is answered here and not passed on: this has no effect")
	}
}

// httpMatch checks one set of conditions.
func (c *checker) httpMatch(path string, m *networking.HTTPMatchRequest) {
	c.boundGateways(path, m.Gateways)
	switch text := m.Uri.GetExact() + m.Uri.GetPrefix(); {
	case text == "" || m.Uri.GetExact() == "*": // the path of some OPTIONS requests
	case text[0] != '/':
		c.warnf(path+".uri", "%s matches no request: paths begin with /", quote(text))
	case strings.ContainsAny(text, "?#"):
		c.warnf(path+".uri",
			"%s matches no request: paths are matched without what follows ? and #; use queryParams", quote(text))
	}
	if m.IgnoreUriCase && m.Uri == nil {
		c.warnf(path+".ignoreUriCase", "there is no uri to match, so this has no effect")
	}
	if m.IgnoreUriCase && m.Uri.GetRegex() != "" {
		c.errorf(path+".ignoreUriCase", "this does not work with a regular expression: write (?i) in front of it")
	}
}

// headerMatch checks the name of a header that is matched, or of a claim of the request's token,
// which only gateways match. Source: istio.io, "JWT claim based routing".
func (c *checker) headerMatch(path, name string) {
	switch {
	case strings.HasPrefix(name, claimPrefix) && c.gateways[meshGateway]:
		c.errorf(path, "claims are matched at gateways only, and this VirtualService is for %s: "+
			"name only Gateways in spec.gateways, or match another header", meshGateway)
	case strings.HasPrefix(name, "@request.auth."):
		c.why(path, checkClaim(name))
	case name == "uri" || name == "scheme" || name == "method" || name == "authority":
		c.errorf(path, "this would not be matched as a header: use the field %s of the match", name)
	case slices.Contains(requestParts(), name):
	case strings.HasPrefix(name, ":"):
		c.errorf(path, "%s is no part of a request: match uri, scheme, method or authority", quote(name))
	default:
		c.why(path, checkHeaderName(name))
	}
}

// stringMatch checks how a text is matched. For an entry of a map an empty match means that the
// thing is there at all, and an exact empty text is one.
func (c *checker) stringMatch(path string, m *networking.StringMatch, isEntry bool) {
	switch t := m.MatchType.(type) {
	case nil:
		if !isEntry {
			c.errorf(path, "write exact, prefix or regex")
		}
	case *networking.StringMatch_Exact:
		if t.Exact == "" && !isEntry {
			c.errorf(path+".exact", "the text to match is empty: write it, or remove the match")
		}
	case *networking.StringMatch_Prefix:
		if t.Prefix == "" && isEntry {
			c.errorf(path+".prefix", "the beginning to match is empty: write it, or {} to match any value")
		} else if t.Prefix == "" && strings.HasSuffix(path, ".uri") {
			c.warnf(path+".prefix", "every path begins so: write /, or remove the match")
		} else if t.Prefix == "" {
			c.errorf(path+".prefix", "the beginning to match is empty: write it, or remove the match")
		}
	}
}

// redirect checks an answer that sends the client elsewhere.
func (c *checker) redirect(path string, r *networking.HTTPRedirect) {
	if r.Uri == "" && r.Authority == "" && r.Scheme == "" && r.RedirectPort == nil && r.PrefixRewrite == "" {
		c.errorf(path, "the redirect leads to where it came from: set uri, authority, scheme, port or prefixRewrite")
	}
	if r.Uri != "" && r.PrefixRewrite != "" {
		c.errorf(path+".prefixRewrite", "only one of uri and prefixRewrite can be set")
	}
	if !slices.Contains([]uint32{0, 301, 302, 303, 307, 308}, r.RedirectCode) {
		c.errorf(path+".redirectCode", "the status of a redirect is 301, 302, 303, 307 or 308, not %d", r.RedirectCode)
	}
}

// directResponse checks an answer that the proxy gives itself.
func (c *checker) directResponse(path string, r *networking.HTTPDirectResponse) {
	const limit = 1 << 20
	c.status(path+".status", int(r.Status))
	if size := len(r.Body.GetString_()) + len(r.Body.GetBytes()); size > limit {
		c.errorf(path+".body", "the body has %d bytes, more than %d", size, limit)
	}
}

// status checks the status of an answer.
func (c *checker) status(path string, code int) {
	if code < 200 || code > 599 {
		c.errorf(path, "the status is from 200 to 599, not %d", code)
	}
}

// rewrite checks how the request is changed before it is passed on.
func (c *checker) rewrite(path string, w *networking.HTTPRewrite) {
	if w.Uri != "" && w.UriRegexRewrite != nil {
		c.errorf(path+".uriRegexRewrite", "only one of uri and uriRegexRewrite can be set")
	}
	if w.UriRegexRewrite != nil && w.UriRegexRewrite.Rewrite == "" {
		c.errorf(path+".uriRegexRewrite.rewrite", "the new text is missing")
	}
}

func suspectRewrite(uri string) string {
	if strings.HasPrefix(uri, "/") {
		return ""
	}
	return quote(uri) + " does not begin with /, and servers refuse such paths"
}

// mirrors checks where copies of requests go.
func (c *checker) mirrors(path string, r *networking.HTTPRoute) {
	if r.Mirror != nil && len(r.Mirrors) > 0 {
		c.errorf(path+".mirrors", "only one of mirror and mirrors can be set")
	}
	if r.Mirror == nil && r.MirrorPercentage != nil {
		c.warnf(path+".mirrorPercentage",
			"there is no mirror, so this has no effect: set mirror, or use percentage within mirrors")
	}
	if r.MirrorPercent != nil { //nolint:staticcheck // still read
		c.deprecated(path+".mirrorPercent", "mirrorPercentage: {value: …}", r.MirrorPercentage != nil)
	}
	for i, m := range r.Mirrors {
		if m.Destination == nil {
			c.errorf(at(path+".mirrors", i)+".destination", "the destination is missing")
		}
	}
}

// retries checks a policy of HTTP retries.
func (c *checker) retries(path string, r *networking.HTTPRetry) {
	if r.Attempts == 0 && proto.Size(r) > 0 {
		c.errorf(path+".attempts", "0 attempts switch retries off: remove the other fields, or set attempts")
	}
}

// checkRetryOn is the rule for a list of conditions and statuses.
func checkRetryOn(text string) string {
	for condition := range strings.SplitSeq(text, ",") {
		condition = strings.TrimSpace(condition)
		code, err := strconv.Atoi(condition)
		switch {
		case err == nil && (code < 100 || code > 599):
			return condition + " is not an HTTP status"
		case err == nil || slices.Contains(retryConditions(), condition):
		default:
			return "unknown condition " + quote(condition) + didYouMean(condition, retryConditions()) +
				"; write conditions of Envoy's and HTTP statuses, with commas between them"
		}
	}
	return ""
}

// retryConditions are Envoy's. The request header x-envoy-retriable-header-names names the headers
// for retriable-headers; Istio's API cannot.
// Source:
// https://www.envoyproxy.io/docs/envoy/v1.40.0/configuration/http/http_filters/router_filter#x-envoy-retry-on
func retryConditions() []string {
	return []string{
		"5xx", "gateway-error", "reset", "reset-before-request", "connect-failure", "envoy-ratelimited", "retriable-4xx",
		"refused-stream", "retriable-status-codes", "retriable-headers", "http3-post-connect-failure",
		"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable",
	}
}

// delay checks how long requests are kept back.
func (c *checker) delay(path string, d *networking.HTTPFaultInjection_Delay) {
	if d.Percent != 0 { //nolint:staticcheck // still read
		c.deprecated(path+".percent", "percentage: {value: …}", d.Percentage != nil)
	} else {
		c.share(path, d.Percentage)
	}
	if d.HttpDelayType == nil {
		c.errorf(path+".fixedDelay", "the time of the delay is missing")
	}
}

// abort checks what requests are answered with.
func (c *checker) abort(path string, a *networking.HTTPFaultInjection_Abort) {
	c.share(path, a.Percentage)
	switch t := a.ErrorType.(type) {
	case *networking.HTTPFaultInjection_Abort_HttpStatus:
		c.status(path+".httpStatus", int(t.HttpStatus))
	case nil:
		c.errorf(path, "write httpStatus or grpcStatus")
	}
}

// share warns of a fault for no request, which is what no percentage means.
// Source: istio.io, HTTPFaultInjection.
func (c *checker) share(path string, p *networking.Percent) {
	if p == nil {
		c.warnf(path, "without percentage no request is concerned: write percentage: {value: 100} for all")
	}
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
	if len(p.AllowOrigin) > 0 { //nolint:staticcheck // still read
		c.deprecated(path+".allowOrigin", "allowOrigins: [{exact: …}]", len(p.AllowOrigins) > 0)
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

// checkAuthority is the rule for a host with an optional port. It is taken as it is, not as a
// format.
func checkAuthority(authority string) string {
	if strings.Contains(authority, "%") {
		return quote(authority) + " is not a host: a host cannot be made of parts of the request; write it out"
	}
	outside := func(r rune) bool { return r <= ' ' || r == '/' || r >= 0x7f }
	if authority == "" || strings.ContainsFunc(authority, outside) {
		return quote(authority) + " is not a host: write it without scheme and path"
	}
	return ""
}

// checkRegex is the rule for regular expressions. Proxies use RE2, whose syntax is nearly Go's.
func checkRegex(expression string) string {
	const limit = 1024
	if expression == "" {
		return "the regular expression is empty"
	}
	if len(expression) > limit {
		return fmt.Sprintf("the regular expression has more than %d characters", limit)
	}
	if _, err := regexp.Compile(expression); err != nil {
		return "not a regular expression of RE2's syntax: " +
			strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	return ""
}

// checkParameter is the rule for the names of query parameters.
func checkParameter(name string) string {
	if name == "" {
		return "the name of the parameter is missing"
	}
	return ""
}
