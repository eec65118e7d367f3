package config

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

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

// lowerHosts writes the hosts of a specification in lower case. Hosts have no case, and they are
// found by their text: a rule for Web.example would pass over web.example. m is not shared yet.
func lowerHosts(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap(): // no map has hosts
		case fd.Message() != nil && fd.IsList():
			for i := range v.List().Len() {
				lowerHosts(v.List().Get(i).Message())
			}
		case fd.Message() != nil:
			lowerHosts(v.Message())
		case hasHosts(fd) && fd.IsList():
			for i := range v.List().Len() {
				v.List().Set(i, protoreflect.ValueOfString(lowerHost(v.List().Get(i).String())))
			}
		case hasHosts(fd):
			m.Set(fd, protoreflect.ValueOfString(lowerHost(v.String())))
		}
		return true
	})
}

// hasHosts says that a field has hosts, maybe after a namespace, or addresses.
func hasHosts(fd protoreflect.FieldDescriptor) bool {
	switch name, _ := strings.CutPrefix(string(fd.FullName()), "istio.networking.v1alpha3."); name {
	case "VirtualService.hosts", "DestinationRule.host", "ServiceEntry.hosts", "Server.hosts", "IstioEgressListener.hosts",
		"Destination.host", "TLSMatchAttributes.sni_hosts", "ClientTLSSettings.sni", "WorkloadEntry.address":
		return true
	}
	return false
}

// lowerHost leaves namespaces alone, of which capitals are an error, and paths of sockets.
func lowerHost(host string) string {
	if strings.HasPrefix(host, unixPrefix) {
		return host
	}
	slash := strings.IndexByte(host, '/') + 1
	return host[:slash] + strings.ToLower(host[slash:])
}
