package entry

import (
	"strings"

	"github.com/ashore-mesh/ashore/registry"
)

// protocols are the names that a port may declare or begin its name with, in lower case.
// Source: istio.io, "Protocol selection".
var protocols = map[string]registry.Protocol{
	"tcp":      registry.TCP,
	"http":     registry.HTTP,
	"http2":    registry.HTTP2,
	"grpc":     registry.GRPC,
	"grpc-web": registry.GRPCWeb,
	"https":    registry.HTTPS,
	"tls":      registry.TLS,
	"mongo":    registry.Mongo,
	"mysql":    registry.MySQL,
	"redis":    registry.Redis,
	"udp":      registry.UDP,
}

// protocolOf is the protocol that a port declares; where it declares none, the one that its name
// begins with ("http-web"); else Unknown, which the proxy sniffs.
func protocolOf(declared, name string) registry.Protocol {
	if p, ok := protocols[strings.ToLower(declared)]; ok {
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
	return protocols[prefix]
}
