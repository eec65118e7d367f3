package registry

import "strings"

// ParseProtocol reads the name of a protocol as ports declare it, in any case, and says whether it
// is one.
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
