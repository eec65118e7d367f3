package config

import "strings"

// ResolveHost is the full name of a host as operators write it: a name without dots is a service of
// namespace, "web" in shop is "web.shop.svc.<domain>". Names with a dot, wildcards and the empty
// string are full already.
// Source: istio.io VirtualService, Destination.host.
func ResolveHost(short, namespace, domain string) string {
	if short == "" || strings.ContainsAny(short, ".*:/") {
		return short
	}
	return short + "." + namespace + ".svc." + domain
}
