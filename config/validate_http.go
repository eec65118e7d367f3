package config

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// httpRoute checks one HTTP route of a VirtualService.
func (c *checker) httpRoute(path string, r *networking.HTTPRoute) {
	c.httpAction(path, r)
	for i, m := range r.Match {
		c.httpMatch(at(path+".match", i), m)
	}
	weights := make([]int32, 0, len(r.Route))
	for i, d := range r.Route {
		p := at(path+".route", i)
		c.destination(p+".destination", d.Destination)
		c.headers(p+".headers", d.Headers, "")
		weights = append(weights, d.Weight)
	}
	c.weights(path+".route", weights)
	c.headers(path+".headers", r.Headers, r.Rewrite.GetAuthority())
	c.redirect(path+".redirect", r.Redirect)
	c.directResponse(path+".directResponse", r.DirectResponse)
	c.rewrite(path+".rewrite", r)
	if len(r.Route) == 0 && r.Headers.GetRequest() != nil {
		c.warnf(path+".headers.request", "the request is answered here and not passed on: this has no effect")
	}
	c.durationOrZero(path+".timeout", r.Timeout)
	c.retries(path+".retries", r.Retries)
	c.fault(path+".fault", r.Fault)
	c.mirrors(path, r)
	c.cors(path+".corsPolicy", r.CorsPolicy)
}

// httpAction checks that the route does exactly one thing, and nothing that does not go with it.
func (c *checker) httpAction(path string, r *networking.HTTPRoute) {
	if r.Delegate != nil {
		return // unsupported
	}
	switch actions := present(r, "route", "redirect", "directResponse"); {
	case len(actions) == 0:
		c.errorf(path, "the route leads nowhere: write route, redirect or directResponse")
	case len(actions) > 1:
		c.errorf(path+"."+actions[1], "a route does one thing: remove one of %s", strings.Join(actions, " and "))
	case actions[0] == "route":
		return
	}
	for _, field := range present(r, "rewrite", "fault", "timeout", "retries", "mirror", "mirrors") {
		if len(r.Route) == 0 && (r.Redirect != nil || r.DirectResponse != nil) {
			c.errorf(path+"."+field, "%s works only together with route: remove it", field)
		}
	}
}

// httpMatch checks one set of conditions.
func (c *checker) httpMatch(path string, m *networking.HTTPMatchRequest) {
	c.stringMatch(path+".uri", m.Uri)
	c.matchedPath(path+".uri", m.Uri)
	c.stringMatch(path+".scheme", m.Scheme)
	c.stringMatch(path+".method", m.Method)
	c.stringMatch(path+".authority", m.Authority)
	c.headerMatches(path+".headers", m.Headers)
	c.headerMatches(path+".withoutHeaders", m.WithoutHeaders)
	for _, name := range slices.Sorted(maps.Keys(m.QueryParams)) {
		p := entry(path+".queryParams", name)
		if name == "" {
			c.errorf(p, "the name of the parameter is missing")
		}
		c.optionalMatch(p, m.QueryParams[name])
	}
	if m.IgnoreUriCase && m.Uri == nil {
		c.warnf(path+".ignoreUriCase", "there is no uri to match, so this has no effect")
	}
	if m.IgnoreUriCase && m.Uri.GetRegex() != "" {
		c.errorf(path+".ignoreUriCase", "this does not work with a regular expression: write (?i) in front of it")
	}
	c.optionalPort(path+".port", m.Port)
	c.source(path, m.SourceLabels, m.SourceNamespace)
}

// matchedPath warns of texts that no path is like.
func (c *checker) matchedPath(path string, m *networking.StringMatch) {
	text := m.GetExact() + m.GetPrefix()
	switch {
	case text == "" || m.GetExact() == "*": // the path of some OPTIONS requests
	case text[0] != '/':
		c.warnf(path, "%s matches no request: paths begin with /", quote(text))
	case strings.ContainsAny(text, "?#"):
		c.warnf(path, "%s matches no request: paths are matched without what follows ? and #; use queryParams",
			quote(text))
	}
}

// stringMatch checks how a text is matched; nil is any text.
func (c *checker) stringMatch(path string, m *networking.StringMatch) {
	if m == nil {
		return
	}
	switch t := m.MatchType.(type) {
	case *networking.StringMatch_Exact:
		if t.Exact == "" {
			c.errorf(path+".exact", "the text to match is empty: write it, or remove the match")
		}
	case *networking.StringMatch_Prefix:
		if t.Prefix == "" {
			c.errorf(path+".prefix", "the beginning to match is empty: write it, or remove the match")
		}
	case *networking.StringMatch_Regex:
		c.regex(path+".regex", t.Regex)
	default:
		c.errorf(path, "write exact, prefix or regex")
	}
}

// optionalMatch is stringMatch where an empty one means that the thing is there at all, and an
// exact empty text is one.
func (c *checker) optionalMatch(path string, m *networking.StringMatch) {
	switch t := m.GetMatchType().(type) {
	case nil:
	case *networking.StringMatch_Exact:
	case *networking.StringMatch_Prefix:
		if t.Prefix == "" {
			c.errorf(path+".prefix", "the beginning to match is empty: write it, or {} to match any value")
		}
	case *networking.StringMatch_Regex:
		c.regex(path+".regex", t.Regex)
	}
}

// headerMatches checks conditions on headers.
func (c *checker) headerMatches(path string, headers map[string]*networking.StringMatch) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		p := entry(path, name)
		c.optionalMatch(p, headers[name])
		switch {
		case strings.HasPrefix(name, "@request.auth."):
			c.why(p, checkClaim(name))
		case name == "uri" || name == "scheme" || name == "method" || name == "authority":
			c.errorf(p, "this would not be matched as a header: use the field %s of the match", name)
		case strings.HasPrefix(name, ":"):
			c.errorf(p, "match the parts of the request by uri, scheme, method and authority")
		default:
			c.why(p, checkHeaderName(name))
		}
	}
}

// redirect checks an answer that sends the client elsewhere.
func (c *checker) redirect(path string, r *networking.HTTPRedirect) {
	if r == nil {
		return
	}
	if r.Uri == "" && r.Authority == "" && r.Scheme == "" && r.RedirectPort == nil && r.PrefixRewrite == "" {
		c.errorf(path, "the redirect leads to where it came from: set uri, authority, scheme, port or prefixRewrite")
	}
	if r.Uri != "" && r.PrefixRewrite != "" {
		c.errorf(path+".prefixRewrite", "only one of uri and prefixRewrite can be set")
	}
	c.why(path+".uri", checkHeaderText(r.Uri))
	c.why(path+".prefixRewrite", checkHeaderText(r.PrefixRewrite))
	if r.Authority != "" {
		c.authority(path+".authority", r.Authority)
	}
	if p, ok := r.RedirectPort.(*networking.HTTPRedirect_Port); ok {
		c.port(path+".port", p.Port)
	}
	if r.Scheme != "" && r.Scheme != "http" && r.Scheme != "https" {
		c.errorf(path+".scheme", "the scheme is http or https, not %s", quote(r.Scheme))
	}
	if !slices.Contains([]uint32{0, 301, 302, 303, 307, 308}, r.RedirectCode) {
		c.errorf(path+".redirectCode", "the status of a redirect is 301, 302, 303, 307 or 308, not %d", r.RedirectCode)
	}
}

// authority checks a host with an optional port. It is taken as it is, not as a format.
func (c *checker) authority(path, authority string) {
	if strings.Contains(authority, "%") {
		c.errorf(path, "%s is not a host: a host cannot be made of parts of the request; write it out",
			quote(authority))
		return
	}
	if authority == "" || strings.ContainsFunc(authority,
		func(r rune) bool { return r <= ' ' || r == '/' || r >= 0x7f }) {
		c.errorf(path, "%s is not a host: write it without scheme and path", quote(authority))
	}
}

// directResponse checks an answer that the proxy gives itself.
func (c *checker) directResponse(path string, r *networking.HTTPDirectResponse) {
	const limit = 1 << 20
	if r == nil {
		return
	}
	if r.Status < 200 || r.Status > 599 {
		c.errorf(path+".status", "the status is from 200 to 599, not %d", r.Status)
	}
	if r.Body == nil {
		return
	}
	if r.Body.Specifier == nil {
		c.errorf(path+".body", "write string or bytes")
	}
	if size := len(r.Body.GetString_()) + len(r.Body.GetBytes()); size > limit {
		c.errorf(path+".body", "the body has %d bytes, more than %d", size, limit)
	}
}

// rewrite checks how the request is changed before it is passed on.
func (c *checker) rewrite(path string, r *networking.HTTPRoute) {
	w := r.Rewrite
	if w == nil {
		return
	}
	if w.Uri == "" && w.Authority == "" && w.UriRegexRewrite == nil {
		c.errorf(path, "nothing is rewritten: set uri, uriRegexRewrite or authority")
	}
	if w.Uri != "" && w.UriRegexRewrite != nil {
		c.errorf(path+".uriRegexRewrite", "only one of uri and uriRegexRewrite can be set")
	}
	c.why(path+".uri", checkHeaderText(w.Uri))
	if w.Uri != "" && w.Uri[0] != '/' {
		c.warnf(path+".uri", "%s does not begin with /, and servers refuse such paths", quote(w.Uri))
	}
	if w.Authority != "" {
		c.authority(path+".authority", w.Authority)
	}
	if g := w.UriRegexRewrite; g != nil {
		c.regex(path+".uriRegexRewrite.match", g.Match)
		if g.Rewrite == "" {
			c.errorf(path+".uriRegexRewrite.rewrite", "the new text is missing")
		}
		c.why(path+".uriRegexRewrite.rewrite", checkHeaderText(g.Rewrite))
	}
}

// mirrors checks where copies of requests go.
func (c *checker) mirrors(path string, r *networking.HTTPRoute) {
	if r.Mirror != nil && len(r.Mirrors) > 0 {
		c.errorf(path+".mirrors", "only one of mirror and mirrors can be set")
	}
	if r.Mirror != nil {
		c.destination(path+".mirror", r.Mirror)
	} else if r.MirrorPercentage != nil {
		c.errorf(path+".mirrorPercentage", "there is no mirror: set it, or use percentage within mirrors")
	}
	if p := r.MirrorPercent; p != nil { //nolint:staticcheck // still read
		c.percent(path+".mirrorPercent", float64(p.Value))
		c.deprecated(path+".mirrorPercent", "mirrorPercentage: {value: …}", r.MirrorPercentage != nil)
	}
	if r.MirrorPercentage != nil {
		c.percent(path+".mirrorPercentage.value", r.MirrorPercentage.Value)
	}
	for i, m := range r.Mirrors {
		p := at(path+".mirrors", i)
		c.destination(p+".destination", m.Destination)
		if m.Percentage != nil {
			c.percent(p+".percentage.value", m.Percentage.Value)
		}
	}
}
