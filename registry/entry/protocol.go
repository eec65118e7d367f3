package entry

import (
	"strings"

	"github.com/ashore-mesh/ashore/registry"
)

// protocolOf is the protocol that a port declares; where it declares none, the one that its name
// begins with ("http-web"); else Unknown, which the proxy sniffs.
func protocolOf(declared, name string) registry.Protocol {
	if p, ok := registry.ParseProtocol(declared); ok {
		return p
	}
	if declared != "" {
		return registry.Unknown
	}
	name = strings.ToLower(name)
	if strings.HasPrefix(name, "grpc-web") {
		return registry.GRPCWeb
	}
	prefix, _, _ := strings.Cut(name, "-")
	p, _ := registry.ParseProtocol(prefix)
	return p
}
