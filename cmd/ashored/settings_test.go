package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// readAndCheck is what a settings file means.
func readAndCheck(path string) (settings, error) {
	s, err := readSettings(path, defaults())
	if err == nil {
		err = s.check(path)
	}
	return s, err
}

// write makes a file of the test and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSettings(t *testing.T) {
	t.Parallel()
	path := write(t, "ashored.yaml", `
state: /srv/ashore
domain: mesh.example
xds: {plaintextAddress: "127.0.0.1:7000", gap: 10ms}
log: {level: debug, format: json}
memory: {gcPercent: 80, limit: 2GiB}
mesh:
  accessLogFile: /dev/stdout
`)
	s, err := readAndCheck(path)
	if err != nil {
		t.Fatal(err)
	}
	if s.State != "/srv/ashore" || s.Files != "/etc/ashore/config" || s.XDS.PlaintextAddress != "127.0.0.1:7000" || s.XDS.Gap != 10*time.Millisecond ||
		s.Log.Format != "json" || s.Memory.GCPercent != 80 || s.Metrics.Address != defaultMetrics {
		t.Errorf("settings %+v", s)
	}
	if s.mesh.Config.GetAccessLogFile() != "/dev/stdout" || s.mesh.Domain != "mesh.example" || s.mesh.Config.GetConnectTimeout().AsDuration() != 10*time.Second {
		t.Errorf("mesh %+v: want what was set, and Istio's defaults", s.mesh)
	}
}

// Every wrong setting is told with where it is and what to do.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	const address = "xds: {plaintextAddress: \"127.0.0.1:1\"}\n"
	for _, tc := range []struct{ name, in, want string }{
		{"unknown", address + "stat: /x\n", `ashored.yaml:2: stat: unknown setting; did you mean "state"?`},
		{"nothing to serve", "", "ashored.yaml: xds.plaintextAddress: not set"},
		{"address without port", "xds: {plaintextAddress: localhost}\n", `xds.plaintextAddress: "localhost" is not an address: want HOST:PORT`},
		{"host name", address + "metrics: {address: \"localhost:1\"}\n", `ashored.yaml:2: metrics.address: "localhost" of "localhost:1" is not an IP address`},
		{"port", address + "metrics: {address: \":70000\"}\n", `"70000" is not a port`},
		{"level", address + "log: {level: loud}\n", `ashored.yaml:2: log.level: "loud" is not a level`},
		{"format", address + "log:\n  level: info\n  format: xml\n", `ashored.yaml:4: log.format: "xml" is not a format`},
		{"gc", address + "memory: {gcPercent: 1}\n", "ashored.yaml:2: memory.gcPercent: 1: want 10 or more"},
		{"limit", address + "memory: {limit: 12}\n", `ashored.yaml:2: memory.limit: "12" is not a size`},
		{"little memory", address + "memory: {limit: 1MiB}\n", "ashored.yaml:2: memory.limit: 1MiB is less than ashored needs: want 64MiB or more"},
		{"domain with a space", address + "domain: 'a b'\n", `ashored.yaml:2: domain: "a b" is not the suffix of host names`},
		{"domain with an empty part", address + "domain: .local\n", `ashored.yaml:2: domain: ".local" is not`},
		{"no setting", address + "foo: 1\n", "ashored.yaml:2: foo: unknown setting; known here: admin, domain, files, log, "},
		{"no metrics address", address + "metrics: {address: \"\"}\n", `metrics.address: "" is not an address`},
		{"gap", "xds: {plaintextAddress: \"127.0.0.1:1\", gap: 0s}\n", "ashored.yaml:1: xds.gap: 0s: want more than 0"},
		{"empty files", address + "files: \"\"\n", "files: empty: name a path"},
		{"empty domain", address + "domain: \"\"\n", `ashored.yaml:2: domain: "" is not the suffix`},
		{"empty state", address + "state: \"\"\n", "state: empty: name a path"},
		{"mesh", address + "mesh:\n  accesLogFile: x\n", "ashored.yaml:3"},
		{"networks", address + "meshNetworks:\n  netwrks: {}\n", "ashored.yaml:3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := readAndCheck(write(t, "ashored.yaml", tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		t.Parallel()
		if _, err := readSettings("/does/not/exist.yaml", defaults()); err == nil || !strings.Contains(err.Error(), "there is no settings file /does/not/exist.yaml") {
			t.Errorf("error %v", err)
		}
	})
}

// A field of MeshConfig that is not honoured warns, it does not stop the mesh.
func TestMeshWarning(t *testing.T) {
	t.Parallel()
	s, err := readAndCheck(write(t, "ashored.yaml", "xds: {plaintextAddress: \"127.0.0.1:1\"}\nmesh:\n  ingressClass: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.warnings) != 1 || s.warnings[0].Line != 3 {
		t.Errorf("warnings %v, want one of line 3", s.warnings)
	}
}

func FuzzParseBytes(f *testing.F) {
	f.Add("2GiB")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseBytes(s); err == nil && n < 0 {
			t.Errorf("%q is %d", s, n)
		}
	})
}

// Two settings that get in one another's way are refused, and the default places are not.
func TestSettingsTogether(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"one address":          {"xds: {plaintextAddress: \"127.0.0.1:7000\"}\nmetrics: {address: \"127.0.0.1:7000\"}\n", "metrics.address"},
		"state in files":       {"xds: {plaintextAddress: \"127.0.0.1:7000\"}\nfiles: /srv/mesh\nstate: /srv/mesh/state\n", "state: /srv/mesh/state"},
		"one folder":           {"xds: {plaintextAddress: \"127.0.0.1:7000\"}\nfiles: /srv/mesh\nstate: /srv/mesh/\n", "state"},
		"files in state":       {"xds: {plaintextAddress: \"127.0.0.1:7000\"}\nfiles: /srv/mesh/files\nstate: /srv/mesh\n", "state"},
		"hidden state":         {"xds: {plaintextAddress: \"127.0.0.1:7000\"}\nfiles: /srv/mesh\nstate: /srv/mesh/.ashore\n", ""},
		"folders side by side": {"xds: {plaintextAddress: \"127.0.0.1:7000\"}\nfiles: /srv/mesh\nstate: /srv/mesh-state\n", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readAndCheck(write(t, "ashored.yaml", tc.text))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}
