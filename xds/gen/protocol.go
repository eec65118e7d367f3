package gen

import (
	"strings"

	"github.com/ashore-mesh/ashore/registry"
)

// parseProtocol reads the protocol of a Sidecar's or Gateway's port; an unknown name is sniffed.
// Source: istio.io, Protocol Selection.
func parseProtocol(name string) registry.Protocol {
	switch strings.ToUpper(name) {
	case "TCP":
		return registry.TCP
	case "HTTP", "HTTP_PROXY":
		return registry.HTTP
	case "HTTP2":
		return registry.HTTP2
	case "GRPC":
		return registry.GRPC
	case "GRPC-WEB":
		return registry.GRPCWeb
	case "HTTPS":
		return registry.HTTPS
	case "TLS":
		return registry.TLS
	case "MONGO":
		return registry.Mongo
	case "MYSQL":
		return registry.MySQL
	case "REDIS":
		return registry.Redis
	case "UDP":
		return registry.UDP
	default:
		return registry.Unknown
	}
}

// isHTTPProxy says that clients send requests for absolute URLs.
func isHTTPProxy(name string) bool { return strings.EqualFold(name, "HTTP_PROXY") }
