package registry

import "strings"

// ParseProtocol parses the name of a protocol, in upper or lower case; false: it is unknown.
// Source: istio.io, "Protocol selection".
func ParseProtocol(name string) (Protocol, bool) {
	switch strings.ToUpper(name) {
	case "TCP":
		return TCP, true
	case "HTTP":
		return HTTP, true
	case "HTTP2":
		return HTTP2, true
	case "GRPC":
		return GRPC, true
	case "GRPC-WEB":
		return GRPCWeb, true
	case "HTTPS":
		return HTTPS, true
	case "TLS":
		return TLS, true
	case "MONGO":
		return Mongo, true
	case "MYSQL":
		return MySQL, true
	case "REDIS":
		return Redis, true
	case "UDP":
		return UDP, true
	default:
		return Unknown, false
	}
}
