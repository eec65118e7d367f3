package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// readFile is what a settings file means.
func readFile(path string) (Config, error) { return Read(Flags{File: path}) }

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
xds: {plaintextAddress: "127.0.0.1:7000"}
log: {level: debug, format: json}
mesh:
  accessLogFile: /dev/stdout
`)
	s, err := readFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if s.State != "/srv/ashore" || !slices.Equal(foldersOf(s), []string{"/etc/ashore/config"}) ||
		s.XDS.PlaintextAddress != "127.0.0.1:7000" ||
		s.Log.Format != "json" || s.Metrics.Address != "127.0.0.1:15014" {
		t.Errorf("settings %+v", s)
	}
	if s.XDS.Address != ":15012" || s.CA.Grace != 168*time.Hour || s.Access.Others() {
		t.Errorf("settings %+v, want the defaults of what is not set", s)
	}
	if s.MeshConfig.Config.GetAccessLogFile() != "/dev/stdout" || s.MeshConfig.Domain != "mesh.example" ||
		s.MeshConfig.Config.GetConnectTimeout().AsDuration() != 10*time.Second {
		t.Errorf("mesh %+v: want what was set, and Istio's defaults", s.MeshConfig)
	}
}

// Every wrong setting is told with where it is and what to do.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	const address = "xds: {plaintextAddress: \"127.0.0.1:1\"}\n"
	const kubernetes = "sources: [{kind: files, folder: /x}, {kind: kubernetes, name: east}]\n"
	for _, tc := range []struct{ name, in, want string }{
		{"unknown", address + "stat: /x\n", `ashored.yaml:2: stat: unknown setting; did you mean "state"?`},
		{"nothing to serve", "xds: {address: \"\"}\n", "ashored.yaml:1: xds.address: want an address here or in xds.plaintextAddress"},
		{"advertised", "xds: {advertise: [\"mesh.example:1\", \"0.0.0.0:1\"]}\n", `xds.advertise: "0.0.0.0:1": want HOST:PORT that machines can reach`},
		{"advertised without port", "xds: {advertise: [mesh]}\n", `xds.advertise: "mesh": want HOST:PORT`},
		{"no metrics address", address + "metrics: {address: \"\"}\n", "metrics.address: want an address"},
		{"webhook alone", "xds: {address: \"\", plaintextAddress: \"127.0.0.1:7000\"}\nwebhook: {address: \":15017\"}\n", "webhook.address: want none without xds.address"},
		{"validity", "ca: {validity: 1s}\n", "ca.validity: want 1m or more"},
		{"grace", "ca: {grace: -1h}\n", "ca.grace: want a duration"},
		{"name", "ca: {names: ['a b']}\n", `ca.names: "a b" is neither a DNS name nor an IP address`},
		{"issuer", "attestors: {jwt: [{jwks: /x}]}\n", `attestors.jwt: issuer 1 "": issuer is not set`},
		{"an unknown setting of an issuer", "attestors: {jwt: [{issuer: \"https://x\", audience: [a]}]}\n", `attestors.jwt[0].audience: unknown setting; did you mean "audiences"?`},
		{"an empty issuer", "attestors: {jwt: [~]}\n", `attestors.jwt: issuer 1 "": issuer is not set`},
		{"keys", "attestors: {jwt: [{issuer: x}]}\n", `attestors.jwt: issuer 1 "x": jwks is not set`},
		{"keys of plain HTTP", "attestors: {jwt: [{issuer: \"http://x\"}]}\n", `attestors.jwt: issuer 1 "http://x": jwks is not set`},
		{"one issuer twice", "attestors: {jwt: [{issuer: x, jwks: /x}, {issuer: x, jwks: /y}]}\n", `attestors.jwt: issuer 2 "x": it is there twice`},
		{"issuer for nobody", "xds: {address: \"\", plaintextAddress: \"127.0.0.1:1\"}\nattestors: {jwt: [{issuer: x, jwks: /x}]}\n", "attestors.jwt: want none without xds.address"},
		{"tokens of no cluster", kubernetes + "attestors: {kubernetes: [east, west]}\n", `ashored.yaml:2: attestors.kubernetes: "west" is not the name of a source of kind kubernetes`},
		{"tokens of one cluster twice", kubernetes + "attestors: {kubernetes: [east, east]}\n", `attestors.kubernetes: "east" is there twice`},
		{"tokens for nobody", kubernetes + "xds: {address: \"\", plaintextAddress: \"127.0.0.1:1\"}\nattestors: {kubernetes: [east]}\n", "attestors.kubernetes: want none without xds.address"},
		{"secrets of no cluster", kubernetes + "secrets: {kubernetes: files}\n", `secrets.kubernetes: "files" is not the name of a source of kind kubernetes`},
		{"a signer of no cluster", kubernetes + "ca: {signer: {name: example.com/mesh, source: west, roots: /x}}\n", `ca.signer.source: "west" is not the name`},
		{"a signer without a name", kubernetes + "ca: {signer: {source: east, roots: /x}}\n", `ca.signer.name: "" is not the name of a signer`},
		{"a signer without a domain", kubernetes + "ca: {signer: {name: mesh, source: east, roots: /x}}\n", `ca.signer.name: "mesh" is not the name of a signer`},
		{"a signer for Kubernetes", kubernetes + "ca: {signer: {name: kubernetes.io/kube-apiserver-client, source: east, roots: /x}}\n", "is a signer of Kubernetes itself"},
		{"a signer without roots", kubernetes + "ca: {signer: {name: example.com/mesh, source: east}}\n", "ca.signer.roots: is not set"},
		{"a short life below a signer", kubernetes + "ca: {validity: 5m, signer: {name: example.com/mesh, source: east, roots: /x}}\n", "ca.validity: want 10m0s or more with ca.signer"},
		{"no such group", "admin: {roles: {viewer: [no-such-group-here]}}\n", `ashored.yaml:1: admin.roles: viewer: this machine has no group "no-such-group-here"`},
		{"range", "fetch: {allow: [localhost]}\n", `fetch.allow: "localhost" is not a range of addresses`},
		{"level", address + "log: {level: loud}\n", `ashored.yaml:2: log.level: want trace`},
		{"format", address + "log:\n  level: info\n  format: xml\n", `ashored.yaml:4: log.format: want text or json`},
		{"domain with a space", address + "domain: 'a b'\n", `ashored.yaml:2: domain: want a suffix of host names`},
		{"domain with an empty part", address + "domain: .local\n", `ashored.yaml:2: domain: want a suffix`},
		{"no setting", address + "foo: 1\n", "ashored.yaml:2: foo: unknown setting; known here: admin, attestors, ca, domain, "},
		{"a source without folder", address + "sources: [{kind: files}]\n", "ashored.yaml:2: sources[0].folder: empty: name a path"},
		{"a source of no kind", address + "sources:\n- name: x\n", `ashored.yaml:3: sources[0].kind: "" is no kind of source: want consul, files, kubernetes, mcp or store`},
		{"an unknown option", address + "sources:\n- kind: files\n  foldr: /x\n", `ashored.yaml:4: sources[0].foldr: unknown setting; did you mean "folder"?`},
		{"an option of the wrong type", address + "sources:\n- kind: files\n  folder: /x\n  required: 7\n", "ashored.yaml:5: sources[0].required: want true or false"},
		{"two sources of one name", address + "sources:\n- {kind: files, folder: /x}\n- {kind: files, folder: /y}\n", `ashored.yaml:4: sources[1].name: "files" is there twice`},
		{"one export twice", address + "sources:\n- {kind: consul, export: {owner: a}}\n- {name: y, kind: consul, export: {owner: a}}\n", `ashored.yaml:4: sources[1].export.owner: "a" is that of another source with this address`},
		{"two stores of one name", address + "sources: [{kind: store}, {kind: store}]\n", `ashored.yaml:2: sources[1].name: "store" is there twice`},
		{"a store of another name", address + "sources: [{kind: store, name: b}]\n", `sources[0].name: "b": there is one store`},
		{"a name with a space", address + "sources:\n- {kind: store}\n- kind: mcp\n  address: a:1\n  name: a b/c\n", `ashored.yaml:6: sources[1].name: "a b/c": want 1 to 63 letters of a to z, A to Z, digits, '-', '_' and '.'`},
		{"a long name", address + "sources: [{kind: consul, name: " + strings.Repeat("a", 64) + "}]\n", "sources[0].name: \"aaaa"},
		{"a port of a server that does not exist", address + "sources:\n- kind: mcp\n  address: 127.0.51.121:1501000\n", `ashored.yaml:4: sources[0].address: invalid port "1501000" in "127.0.51.121:1501000": want a number from 1 to 65535`},
		{"a port of Consul that does not exist", address + "sources:\n- kind: consul\n  address: http://127.0.51.130:850000\n", `ashored.yaml:4: sources[0].address: "850000" is not a port of "http://127.0.51.130:850000": want a number from 1 to 65535`},
		{"a port of the store that does not exist", address + "store:\n  kind: consul\n  address: http://127.0.51.130:0\n", `ashored.yaml:4: store.address: "0" is not a port of "http://127.0.51.130:0"`},
		{"a store of no kind", address + "store: {kind: etcd}\n", `ashored.yaml:2: store.kind: "etcd": want bolt or consul`},
		{"a store in Consul that is none", address + "store:\n  prefix: a/b\n", "ashored.yaml:2: store: address, prefix, tokenFile and tls are only for store.kind consul, and that is bolt"},
		{"a store in Consul nowhere", address + "store:\n  kind: consul\n  address: consul:8500\n", `ashored.yaml:4: store.address: "consul:8500": want http://HOST:PORT`},
		{"a store below nothing", address + "store:\n  kind: consul\n  prefix: a//b\n", `ashored.yaml:4: store.prefix: "a//b": want letters`},
		{"a store by half of TLS", address + "store:\n  kind: consul\n  address: https://consul\n  tls: {certFile: /x}\n", "store.tls: certFile and keyFile belong together"},
		{"merging endpoints", address + "merge: {endpoints: hide}\n", `ashored.yaml:2: merge.endpoints: want unite or shadow`},
		{"a server without address", address + "sources:\n- kind: mcp\n", `ashored.yaml:3: sources[0].address: want host:port`},
		{"a server in the open and by TLS", address + "sources:\n- kind: mcp\n  address: a:1\n  plaintext: true\n  caFile: /x\n", `ashored.yaml:5: sources[0].plaintext: cannot be combined`},
		{"two clusters of one ID", address + "sources: [{kind: kubernetes, name: a, cluster: b}, {kind: kubernetes, name: b}]\n",
			`sources[1].cluster: "b" is the ID of another cluster`},
		{"no list of sources", address + "sources: {kind: files}\n", "ashored.yaml:2: sources: want a list"},
		{"an empty list of sources", address + "sources: []\n", "ashored.yaml:2: sources: the list is empty"},
		{"an empty source", address + "sources: [~]\n", `ashored.yaml:2: sources[0]: want settings with names`},
		{"a source by alias", address + "sources: [&a {kind: store}, *a]\n", `sources[1].name: "store" is there twice`},
		{"no source", address + "sources: [files]\n", `ashored.yaml:2: sources[0]: want settings with names (name: value), got "files"`},
		{"empty domain", address + "domain: \"\"\n", `ashored.yaml:2: domain: want a suffix`},
		{"empty state", address + "state: \"\"\n", "state: want a path"},
		{"mesh", address + "mesh:\n  accesLogFile: x\n", "ashored.yaml:3"},
		{"networks of the file itself", address + "meshNetworks: {}\n", "ashored.yaml:2: meshNetworks: want a text"},
		{"networks of no file", address + "meshNetworks: /does/not/exist\n", "ashored.yaml:2: meshNetworks: open /does/not/exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := readFile(write(t, "ashored.yaml", tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		t.Parallel()
		if _, err := readFile("/does/not/exist.yaml"); err == nil || !strings.Contains(err.Error(), "there is no settings file /does/not/exist.yaml") {
			t.Errorf("error %v", err)
		}
	})
}

// The networks are those of the file that meshNetworks names, and its errors have its lines.
func TestNetworks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"networks: {west: {endpoints: [{fromCidr: 10.2.0.0/16}, {fromRegistry: dc1}]}}": "",
		"networks: {west: {endpoint: []}}":                                              "networks.yaml:1: networks[west].endpoint: unknown field",
		"networks: {west: {endpoints: [{fromRegistry: files}]}}":                        `"files" is not the name of a source of kind consul`,
	} {
		file := write(t, "networks.yaml", text)
		s, err := readFile(write(t, "ashored.yaml", "xds: {plaintextAddress: \"127.0.0.1:1\"}\nsources:\n"+
			"- {kind: consul, name: dc1}\n- {kind: files, folder: /x}\nmeshNetworks: "+file+"\n"))
		switch {
		case want == "" && (err != nil || s.MeshConfig.Networks == nil):
			t.Errorf("%s: error %v, networks %v", text, err, s.MeshConfig.Networks)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: error %v, want %q in it", text, err, want)
		}
	}
}

// A field of MeshConfig that is not honoured warns, it does not stop the mesh.
func TestMeshWarning(t *testing.T) {
	t.Parallel()
	s, err := readFile(write(t, "ashored.yaml", "xds: {plaintextAddress: \"127.0.0.1:1\"}\nmesh:\n  ingressClass: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Warnings) != 1 || s.Warnings[0].Line != 3 {
		t.Errorf("warnings %v, want one of line 3", s.Warnings)
	}
}

// Flags override the file, and an error names the flag.
func TestFlags(t *testing.T) {
	t.Parallel()
	path := write(t, "ashored.yaml", "log: {level: debug, format: json}\n")
	s, err := Read(Flags{File: path, Set: []string{"log.level=warn", "xds.advertise=[a.example:1]"}})
	if err != nil || s.Log != (Log{"warn", "json"}) || !slices.Equal(s.XDS.Advertise, []string{"a.example:1"}) {
		t.Errorf("got %+v, %v", s, err)
	}
	s, err = Read(Flags{Dev: true, Files: "/x", Set: []string{"state=/s"}})
	if err != nil || !slices.Equal(foldersOf(s), []string{"/x"}) || s.Admin.Socket != "/s/admin.sock" || s.Secure() {
		t.Errorf("development: got %+v, %v", s, err)
	}
	for _, tc := range []struct {
		flags Flags
		want  string
	}{
		{Flags{File: path, Set: []string{"log.level=loud"}}, `--set: log.level: want trace`},
		{Flags{File: path, Set: []string{"log.levl=warn"}}, `--set: log.levl: unknown setting; did you mean "level"?`},
		{Flags{File: path, Set: []string{"warn"}}, "--set warn: want SETTING=VALUE"},
		{Flags{File: path, Files: "/x"}, `--files is for --dev: otherwise write "sources"`},
		{Flags{Dev: true}, "--dev needs --files DIR"},
	} {
		if _, err := Read(tc.flags); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.flags, err, tc.want)
		}
	}
}

// foldersOf are those of all sources of files.
func foldersOf(s Config) []string {
	var out []string
	for _, src := range s.SourceList {
		if f, ok := src.Options.(*FilesSource); ok {
			out = append(out, f.Folder)
		}
	}
	return out
}
