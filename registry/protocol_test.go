package registry_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/registry"
)

// Names are read in any case; an unknown protocol differs from one that is to be detected.
func TestParseProtocol(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		want  registry.Protocol
		known bool
	}{
		{"http", registry.HTTP, true},
		{"Grpc-Web", registry.GRPCWeb, true},
		{"TLS", registry.TLS, true},
		{"udp", registry.UDP, true},
		{"", registry.Unknown, false},
		{"HTTP_PROXY", registry.Unknown, false},
	}
	for _, tt := range tests {
		if got, known := registry.ParseProtocol(tt.name); got != tt.want || known != tt.known {
			t.Errorf("ParseProtocol(%q): got %d, %t, want %d, %t", tt.name, got, known, tt.want, tt.known)
		}
	}
}

func TestProtocolByName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]registry.Protocol{
		"http": registry.HTTP, "http-web": registry.HTTP, "GRPC-Web-x": registry.GRPCWeb, "grpc-api": registry.GRPC,
		"httpx": registry.Unknown, "web-http": registry.Unknown, "unknown": registry.Unknown, "": registry.Unknown,
	} {
		if got := registry.ProtocolByName(name); got != want {
			t.Errorf("ProtocolByName(%q) is %s, want %s", name, got, want)
		}
	}
}
