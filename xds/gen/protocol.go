package gen

import (
	"strings"

	"github.com/ashore-mesh/ashore/registry"
)

// parseProtocol reads the protocol of a Sidecar's or Gateway's port; an unknown name is sniffed.
func parseProtocol(name string) registry.Protocol {
	if isHTTPProxy(name) {
		return registry.HTTP
	}
	p, _ := registry.ParseProtocol(name)
	return p
}

// isHTTPProxy says that clients send requests for absolute URLs.
func isHTTPProxy(name string) bool { return strings.EqualFold(name, "HTTP_PROXY") }
