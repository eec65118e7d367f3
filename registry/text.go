package registry

import (
	"fmt"
	"strings"
)

// String returns the name of the protocol as in a ServiceEntry, or "UNKNOWN".
func (p Protocol) String() string { return nameOf(p, protocolNames()) }

// MarshalText implements encoding.TextMarshaler.
func (p Protocol) MarshalText() ([]byte, error) { return marshalName(p, protocolNames(), "protocol") }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Protocol) UnmarshalText(b []byte) error {
	return unmarshalName(p, b, protocolNames(), "protocol")
}

// String returns STATIC, DNS, DNS_ROUND_ROBIN, NONE or DYNAMIC_DNS.
// Source: istio.io, ServiceEntry.resolution.
func (r Resolution) String() string { return nameOf(r, resolutionNames()) }

// MarshalText implements encoding.TextMarshaler.
func (r Resolution) MarshalText() ([]byte, error) {
	return marshalName(r, resolutionNames(), "resolution")
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Resolution) UnmarshalText(b []byte) error {
	return unmarshalName(r, b, resolutionNames(), "resolution")
}

// String returns "healthy", "unhealthy" or "draining".
func (h Health) String() string { return nameOf(h, healthNames()) }

// MarshalText implements encoding.TextMarshaler.
func (h Health) MarshalText() ([]byte, error) { return marshalName(h, healthNames(), "health") }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Health) UnmarshalText(b []byte) error { return unmarshalName(h, b, healthNames(), "health") }

// The names, in the order of the constants.
func protocolNames() []string {
	return []string{
		"UNKNOWN", "TCP", "HTTP", "HTTP2", "GRPC", "GRPC-WEB", "HTTPS", "TLS", "MONGO", "MYSQL", "REDIS", "UDP",
	}
}

func resolutionNames() []string {
	return []string{"STATIC", "DNS", "DNS_ROUND_ROBIN", "NONE", "DYNAMIC_DNS"}
}

func healthNames() []string { return []string{"healthy", "unhealthy", "draining"} }

// nameOf returns the name of a constant, or its number if it has none.
func nameOf[T ~uint8](v T, names []string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprint(uint8(v))
}

func marshalName[T ~uint8](v T, names []string, what string) ([]byte, error) {
	if int(v) >= len(names) {
		return nil, fmt.Errorf("there is no %s %d", what, v)
	}
	return []byte(names[v]), nil
}

func unmarshalName[T ~uint8](v *T, b []byte, names []string, what string) error {
	for i, n := range names {
		if n == string(b) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("%q is no %s: want %s", b, what, strings.Join(names, ", "))
}
