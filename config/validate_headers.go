package config

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// changedHeaders refuses two names of one header: their case does not count.
func (c *checker) changedHeaders(path string, values map[string]string) {
	seen := make(map[string]string, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		lower := strings.ToLower(name)
		if other, twice := seen[lower]; twice {
			c.errorf(entry(path, name), "%s and %s are one header: keep one of them", quote(other), quote(name))
		}
		seen[lower] = name
	}
}

// changedHeader checks a header that is set or added.
func (c *checker) changedHeader(path, name, value string) {
	if isAuthority(name) {
		c.why(path, checkAuthority(value))
		return
	}
	c.why(path, checkChangedHeader(name))
	c.why(path, checkHeaderText(value))
	c.why(path, checkFormat(value))
}

// oneAuthority checks that the host of a request is changed once. authority is what the route
// rewrites it to, or empty.
func (c *checker) oneAuthority(path string, h *networking.Headers, authority string) {
	for _, host := range authorities(path+".request", h.GetRequest()) {
		if authority != "" {
			c.errorf(host.path, "the host is rewritten to %s already: keep one of the two", quote(authority))
		}
		authority = host.value
	}
	for _, host := range authorities(path+".response", h.GetResponse()) {
		c.errorf(host.path, "the host cannot be changed here: it is part of the request")
	}
}

// changedAuthority is a change of the host by a header.
type changedAuthority struct{ path, value string }

// authorities are the changes of the host among changes of headers.
func authorities(path string, h *networking.Headers_HeaderOperations) (out []changedAuthority) {
	for i, values := range []map[string]string{h.GetSet(), h.GetAdd()} {
		path := path + []string{".set", ".add"}[i]
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if isAuthority(name) {
				out = append(out, changedAuthority{entry(path, name), values[name]})
			}
		}
	}
	return out
}

// isAuthority says that a header is the host of a request. Setting it rewrites the host.
func isAuthority(name string) bool { return strings.EqualFold(name, "host") || name == ":authority" }

// requestParts are the parts of a request that are matched like headers, as the proxy received them:
// the path has its query, and the host its port.
func requestParts() []string { return []string{":authority", ":method", ":path", ":scheme"} }

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

// checkHeaderNameOrAll is checkHeaderName where "*" stands for all.
func checkHeaderNameOrAll(name string) string {
	if name == "*" {
		return ""
	}
	return checkHeaderName(name)
}

// checkCookieName is the rule for the names of cookies and of their attributes.
func checkCookieName(name string) string {
	if !isHeaderToken(name) {
		return quote(name) + " is not the name of a cookie or of its attribute: use letters, digits and \"-\""
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
