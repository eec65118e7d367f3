package envoy

import (
	"strings"

	"github.com/ashore-mesh/ashore/registry"
)

// ParseProtocol reads the protocol of a Sidecar's or Gateway's port; an unknown name is sniffed.
func ParseProtocol(name string) registry.Protocol {
	if IsHTTPProxy(name) {
		return registry.HTTP
	}
	p, _ := registry.ParseProtocol(name)
	return p
}

// IsHTTPProxy says that clients send requests for absolute URLs.
func IsHTTPProxy(name string) bool { return strings.EqualFold(name, "HTTP_PROXY") }
