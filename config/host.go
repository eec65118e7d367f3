package config

import "strings"

// ResolveHost writes a short host name out: a name without a dot (and not a wildcard) belongs to the
// namespace of the object that says it. Other names stay as they are.
// Source: istio.io, VirtualService and DestinationRule, "short names".
func ResolveHost(host, namespace, domain string) string {
	if host == "" || strings.Contains(host, ".") || strings.HasPrefix(host, "*") {
		return host
	}
	return host + "." + namespace + ".svc." + domain
}
