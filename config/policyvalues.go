package config

import (
	"slices"
	"strconv"
	"strings"
)

// The rules for the values of AuthorizationPolicies. A star stands for anything at the beginning or
// at the end of a value, or alone for anything but nothing. Source: istio.io, AuthorizationPolicy.

// checkPolicyName is the rule for values with such a star.
func checkPolicyName(v string) string {
	inner := strings.TrimSuffix(strings.TrimPrefix(v, "*"), "*")
	if strings.Contains(inner, "*") || len(v) > 1 && strings.HasPrefix(v, "*") && strings.HasSuffix(v, "*") {
		return quote(v) + " would match nothing but stars: \"*\" stands for anything only at the beginning, or at the end, or alone"
	}
	return ""
}

// checkPolicyPrincipal is the rule for identities.
func checkPolicyPrincipal(v string) string {
	if strings.HasPrefix(v, "spiffe://") {
		return quote(v) + " would match nothing: leave out \"spiffe://\", cluster.local/ns/shop/sa/web is a principal"
	}
	return checkPolicyName(v)
}

// suspectPrincipal returns why a value is most likely meant for a workload of the mesh, and matches
// none. URIs in certificates of other authorities have any other form.
func suspectPrincipal(v string) string {
	if v == "" || strings.Contains(v, "*") || checkPolicyPrincipal(v) != "" {
		return ""
	}
	parts := strings.Split(v, "/")
	workload := len(parts) == 5 && parts[1] == "ns" && parts[3] == "sa" && !slices.Contains(parts, "")
	account := len(parts) <= 2 && checkPolicyAccount(v) == "" // "web", "shop/web"
	meant := account || slices.Contains(parts, "ns") || slices.Contains(parts, "sa")
	if workload || !meant {
		return ""
	}
	return quote(v) + " is no workload's identity: write cluster.local/ns/shop/sa/web, with the mesh's trust domain, or */ns/shop/sa/web for any; or use serviceAccounts"
}

// checkPolicyNamespace is the rule for namespaces, in which stars may stand everywhere.
func checkPolicyNamespace(v string) string {
	if strings.Contains(v, "/") {
		return quote(v) + " is not a namespace"
	}
	if strings.Contains(v, "*") {
		return ""
	}
	return checkDNSLabel(v)
}

// checkPolicyAccount is the rule for service accounts.
func checkPolicyAccount(v string) string {
	namespace, name, ok := strings.Cut(v, "/")
	if !ok {
		namespace, name = "", v
	}
	switch {
	case strings.Contains(v, "*"):
		return quote(v) + " has a star: service accounts are named one by one; principals take stars"
	case ok && namespace == "" || name == "" || strings.Contains(name, "/"):
		return quote(v) + " is not a service account: write shop/web, or web for one of the policy's namespace"
	case ok:
		return checkDNSLabel(namespace)
	}
	return ""
}

// checkPolicyDomain is the rule for trust domains.
func checkPolicyDomain(v string) string {
	if strings.Contains(v, "/") {
		return quote(v) + " is not a trust domain: write cluster.local"
	}
	return checkPolicyName(v)
}

// checkPolicyHost is the rule for hosts, which may have a port.
func checkPolicyHost(v string) string {
	if strings.ContainsAny(v, "/ @") {
		return quote(v) + " is not a host: write web.example, web.example:8080 or *.example"
	}
	return checkPolicyName(v)
}

// checkPolicyPort is the rule for ports, which are texts here.
func checkPolicyPort(v string) string {
	if n, err := strconv.ParseUint(v, 10, 16); err != nil || n == 0 {
		return quote(v) + " is not a port: write a number from 1 to 65535"
	}
	return ""
}

// checkPolicyMethod is the rule for methods, whose case counts.
func checkPolicyMethod(v string) string {
	if upper := strings.ToUpper(v); v != upper && slices.Contains(corsMethods(), strings.Trim(upper, "*")) {
		return quote(v) + " would match nothing: methods are written in upper case, " + quote(upper)
	}
	if v != "*" && !isHeaderToken(v) {
		return quote(v) + " is not a method of HTTP"
	}
	return checkPolicyName(v)
}

// MaxPolicyTemplate is how many bytes a path template may have, in which an operator counts without
// its braces. Source: envoy.extensions.path.match.uri_template.v3, path_template.
const MaxPolicyTemplate = 256

// checkPolicyPath is the rule for paths.
func checkPolicyPath(v string) string {
	if strings.ContainsAny(v, "?#") {
		return quote(v) + " would match nothing: paths are compared without what follows \"?\""
	}
	if strings.ContainsAny(v, "{}") {
		return checkPolicyTemplate(v)
	}
	if v[0] != '/' && v[0] != '*' {
		return quote(v) + " would match nothing: paths begin with \"/\", or with \"*\" for any beginning"
	}
	return ""
}

// suspectPath warns of stars that are ordinary characters, as they are in Istio.
func suspectPath(v string) string {
	literal := strings.TrimPrefix(v, "*")
	if literal == v {
		literal = strings.TrimSuffix(v, "*")
	}
	if !strings.Contains(literal, "*") || strings.ContainsAny(v, "{}") {
		return ""
	}
	return quote(v) + " has a star that stands for itself: only one star, at the beginning or at the end, stands for anything; write that, or {*} and {**} for segments"
}

// checkPolicyTemplate is the rule for paths with {*} for one segment or {**} for any number of
// them.
func checkPolicyTemplate(v string) string {
	if v[0] != '/' {
		return quote(v) + " is not a path template: it begins with \"/\""
	}
	if n := len(strings.NewReplacer("{", "", "}", "").Replace(v)); n > MaxPolicyTemplate {
		return "the path template has " + strconv.Itoa(n) + " bytes without its braces, and proxies take " + strconv.Itoa(MaxPolicyTemplate)
	}
	segments := strings.Split(v[1:], "/")
	many := false
	for i, s := range segments {
		switch {
		case s == "{*}" || s == "{**}":
			if many {
				return quote(v) + " is not a path template: nothing in braces comes after {**}"
			}
			many = s == "{**}"
		case s == "" && i == len(segments)-1:
		case s == "" || strings.ContainsFunc(s, func(r rune) bool { return !isTemplateRune(r) }):
			return quote(v) + " is not a path template: a segment is {*}, or {**}, or a text of letters, digits and any of -._~%!$&'()+,;:@"
		}
	}
	return ""
}

// isTemplateRune says that Envoy takes r in the text of a template.
// Source: envoy.extensions.path.match.uri_template.v3.
func isTemplateRune(r rune) bool {
	return r < 0x80 && (isAlphanumeric(byte(r), true) || strings.ContainsRune("-._~%!$&'()+,;:@", r))
}
