package agent

import (
	"fmt"
	"testing"
)

// Where DNS is answered, and whether the control plane and the rules know that queries are
// captured.
func TestDNSSettings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit     func(*Settings)
		at       string
		captured bool
	}{
		"on loopback": {func(*Settings) {}, "[127.0.0.1:15053]", false},
		"workloads on loopback": {func(s *Settings) { s.Workload.Addresses = []string{"127.0.0.3"} },
			"[127.0.0.3:15053]", false},
		"intercepted": {func(s *Settings) { s.Workload.Interception = "tproxy" },
			"[127.0.0.1:15053 [fd61:7368:6f72:65::1]:15053]", true},
		"rules of one's own": {func(s *Settings) { s.Workload.Interception = "redirect" }, "[127.0.0.1:15053]", false},
		"intercepted but closed": {func(s *Settings) { s.Workload.Interception, s.Ports.DNS = "tproxy", 0 },
			"[127.0.0.1:0 [fd61:7368:6f72:65::1]:0]", false},
	} {
		s := good()
		s.Dev, s.Workload.Addresses, s.Ports.DNS = false, []string{"10.0.0.7"}, 15053
		tt.edit(&s)
		if got := fmt.Sprint(s.dnsAddresses()); got != tt.at {
			t.Errorf("%s: answered at %s, want %s", name, got, tt.at)
		}
		if got := nodeMetadata(&s, streamConfig)["DNS_CAPTURE"] == "true"; got != tt.captured {
			t.Errorf("%s: the node says captured %v, want %v", name, got, tt.captured)
		}
		if s.Workload.Interception != "tproxy" {
			continue
		}
		c, _, err := InterceptConfig(&s)
		if err != nil || (c.DNSPort != 0) != tt.captured {
			t.Errorf("%s: the rules send queries to %d, %v", name, c.DNSPort, err)
		}
	}
	for text, want := range map[string]string{"10.0.0.2": "10.0.0.2:53", "10.0.0.2:5353": "10.0.0.2:5353",
		"fd00::1": "[fd00::1]:53"} {
		if got, err := dnsServer(text); got != want || err != nil {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
	if _, err := dnsServer("ns.example.com"); err == nil {
		t.Error("a name is taken as a server")
	}
}
