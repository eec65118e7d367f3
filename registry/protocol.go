package registry

import "strings"

// ParseProtocol parses the name of a protocol, in upper or lower case. It returns Unknown and false
// if there is no such protocol.
// Source: istio.io, "Protocol selection".
func ParseProtocol(name string) (Protocol, bool) {
	for i, n := range protocolNames() {
		if p := Protocol(i); p != Unknown && strings.EqualFold(n, name) {
			return p, true
		}
	}
	return Unknown, false
}

// ProtocolByName returns the protocol that the name of a port begins with, as in "http-web". It
// returns Unknown if there is none.
// Source: istio.io, "Protocol selection".
func ProtocolByName(port string) Protocol {
	const grpcWeb = "grpc-web" // it contains the separator
	if len(port) >= len(grpcWeb) && strings.EqualFold(port[:len(grpcWeb)], grpcWeb) {
		return GRPCWeb
	}
	prefix, _, _ := strings.Cut(port, "-")
	p, _ := ParseProtocol(prefix)
	return p
}
