package agent

import (
	"strings"
	"testing"
)

// good are settings that are complete but for defaults.
func good() Settings {
	s := Default()
	s.Dev = true
	s.State = "/run/agent"
	s.Workload.Name = "web-1"
	s.Workload.Addresses = []string{"127.0.0.2"}
	s.XDS.Addresses = []string{"127.0.0.1:15010"}
	return s
}

// Every wrong setting is named, and says what is right.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		edit func(*Settings)
		want []string // "setting: part of the text", in order
	}{
		{"good", func(*Settings) {}, nil},
		{"everything good", func(s *Settings) {
			s.Workload.Locality, s.Workload.Addresses = "eu/a/1", []string{"127.0.0.2", "::1"}
			s.XDS.Addresses = []string{"cp.example.org:15010", "[::1]:15010"}
		}, nil},
		{"not dev", func(s *Settings) { s.Dev = false }, nil},
		{"nothing", func(s *Settings) { s.Workload.Addresses, s.XDS.Addresses = nil, nil },
			[]string{"workload.addresses: not set; give", "xds.addresses: not set; give"}},
		{"type", func(s *Settings) { s.Workload.Type = "waypoint" }, []string{`workload.type: "waypoint" is not known; ` +
			`want sidecar or router`}},
		{"names", func(s *Settings) {
			s.Workload.Name, s.Workload.Namespace = "a~b", "Shop"
		}, []string{`workload.name: "a~b" is not a name`, `workload.namespace: "Shop" is not`}},
		{"addresses", func(s *Settings) { s.Workload.Addresses = []string{"localhost", "0.0.0.0", "fe80::1%eth0"} },
			[]string{`workload.addresses: "localhost" is not`, `workload.addresses: "0.0.0.0"`,
				`workload.addresses: "fe80::1%eth0"`}},
		{"labels", func(s *Settings) { s.Workload.Labels = map[string]string{"app": "a b", "ok": "x"} },
			[]string{`workload.labels: "app": "a b" is not a label`}},
		{"locality", func(s *Settings) { s.Workload.Locality = "a/b/c/d" }, []string{`workload.locality: "a/b/c/d"`}},
		{"tproxy", func(s *Settings) { s.Workload.Interception = "tproxy" }, nil},
		{"tproxy of a router", func(s *Settings) { s.Workload.Type, s.Workload.Interception = "router", "tproxy" },
			[]string{"workload.interception: a router has no application"}},
		{"interception", func(s *Settings) {
			s.Interception.ExcludeOutboundIPRanges, s.Interception.ExcludeInboundPorts = []string{"10.0.0.0/33"},
				[]string{"22", "9-8"}
		}, []string{`interception.excludeOutboundIPRanges: "10.0.0.0/33" is not`,
			`interception.excludeInboundPorts: "9-8" is not a port`}},
		{"interception", func(s *Settings) { s.Workload.Interception = "all" },
			[]string{`workload.interception: "all" is not known; want none or redirect`}},
		{"control plane", func(s *Settings) { s.XDS.Addresses = []string{"127.0.0.1", ":15010", "a:0", "a:99999"} },
			[]string{`xds.addresses: "127.0.0.1" is not host:port`, `xds.addresses: ":15010" is not host:port`,
				`xds.addresses: "a:0" is not`, `xds.addresses: "a:99999" is not`}},
		{"ports", func(s *Settings) { s.Ports.DNS = 70000 }, []string{"ports.dns: 70000 is out of range; want 0 to 65535"}},
		{"envoy", func(s *Settings) { s.Envoy.Concurrency = -1 },
			[]string{"envoy.concurrency: -1"}},
		{"program of a unit", func(s *Settings) { s.UseUnits(""); s.Envoy.Path = "/opt/envoy" },
			[]string{"envoy.path: units run /usr/lib/ashore/envoy"}},
		{"no drain time", func(s *Settings) { s.Envoy.DrainTime = -1 }, []string{"envoy.drainTime: -1ns is negative"}},
		{"a path too long for Envoy's sockets of hot restart", func(s *Settings) { s.UseUnits(strings.Repeat("w", 60)) },
			[]string{"state: the path of the socket /run/ashore-agent/" + strings.Repeat("w", 60) +
				"/envoy/hot_udp_parent_1234567890 has 110 bytes"}},
		{"no drain", func(s *Settings) { s.Drain.Maximum = -1 }, []string{"drain.maximum: -1ns is negative"}},
		{"log", func(s *Settings) { s.Log.Level = "warning" }, []string{`log.level: "warning"`}},
		{"long state", func(s *Settings) { s.State = "/" + strings.Repeat("x", 100) }, []string{"state: the path of",
			"state: the path of", "state: the path of"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := good()
			tc.edit(&s)
			got := lines(s.Complete())
			if len(got) != len(tc.want) {
				t.Fatalf("errors %q, want %q", got, tc.want)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("error %q, want it to begin with %q", got[i], want)
				}
			}
		})
	}
}

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// What depends on the machine is filled in, and what is set stays.
func TestDefaults(t *testing.T) {
	t.Parallel()
	s := good()
	s.State, s.Workload.Name = "", ""
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	if s.Workload.Name == "" || !strings.HasSuffix(s.State, "/ashore-agent/"+s.Workload.Name+".default") ||
		strings.HasPrefix(s.State, "/var/lib") {
		t.Errorf("name %q, state %q; want the host's name and a folder of the user", s.Workload.Name, s.State)
	}
	p := good()
	p.Dev, p.State = false, ""
	if err := p.Complete(); err != nil || p.State != "/var/lib/ashore-agent/web-1.default" {
		t.Errorf("not for trials: %v, state %q", err, p.State)
	}
}
