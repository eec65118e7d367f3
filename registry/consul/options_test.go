package consul

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// The error for a wrong option names the option and the reason.
func TestCheck(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		o    Options
		want string
	}{
		"nothing":               {Options{}, ""},
		"https":                 {Options{Address: "https://consul.example.com", TLS: TLSOptions{CAFile: "/ca.pem"}}, ""},
		"a socket":              {Options{Address: "unix:///run/consul.sock"}, ""},
		"no scheme":             {Options{Address: "127.0.0.1:8500"}, "address: "},
		"a path":                {Options{Address: "http://127.0.0.1:8500/v1"}, "want http://HOST:PORT"},
		"a socket without path": {Options{Address: "unix://run/consul.sock"}, "want unix:// and a whole path"},
		"a password":            {Options{Address: "http://a:geheim@127.0.0.1"}, "a token belongs into tokenFile"},
		"TLS without https":     {Options{TLS: TLSOptions{CAFile: "/ca.pem"}}, "tls: is only for an https address"},
		"a certificate alone": {
			Options{Address: "https://a",
				TLS: TLSOptions{CertFile: "/c.pem"}}, "tls: certFile and keyFile belong together",
		},
		"reads":                   {Options{Reads: "fast"}, `reads: "fast": want one of default, stale`},
		"warning":                 {Options{Warning: "x"}, "warning: "},
		"virtualAddresses":        {Options{VirtualAddresses: "consul"}, `virtualAddresses: "consul": want one of allocated, none`},
		"hosts":                   {Options{Hosts: "x"}, "hosts: "},
		"identity":                {Options{Identity: "x"}, "identity: "},
		"tlsMode":                 {Options{TLSMode: "strict"}, "tlsMode: "},
		"namespace":               {Options{Namespace: "A"}, "namespace: "},
		"domain":                  {Options{Domain: "10.0.0.1"}, "domain: "},
		"all datacenters and one": {Options{Datacenters: []string{"*", "dc1"}}, "datacenters: "},
		"a datacenter":            {Options{Datacenters: []string{"dc 1"}}, "datacenters: "},
		"a pattern":               {Options{Services: []string{"["}}, "services: "},
		"a key":                   {Options{NodeMetadata: map[string]string{`x" == "`: "y"}}, "nodeMetadata: "},
		"a key without value":     {Options{Metadata: map[string]string{"a": ""}}, `metadata: "a" has no value`},
		"a port":                  {Options{ServicePort: 70000}, "servicePort: "},
		"an export": {
			Options{Export: ExportOptions{Owner: "shop", Name: "mesh-${name}", Lease: time.Minute},
				Exported: []string{"other"}},
			"",
		},
		"an export without owner": {Options{Export: ExportOptions{Hosts: []string{"*"}}}, "export.owner: missing"},
		"an owner":                {Options{Export: ExportOptions{Owner: "a/b"}}, `export.owner: "a/b": want at most 50`},
		"its own entries": {
			Options{Export: ExportOptions{Owner: "shop"},
				Exported: []string{"shop"}}, "exported: \"shop\" is export.owner too",
		},
		"an owner of others": {Options{Exported: []string{"A"}}, "exported: \"A\""},
		"a lease": {
			Options{Export: ExportOptions{Owner: "shop", Lease: time.Second}}, "export.lease: 1s: want 10s to 24h0m0s",
		},
		"a pattern of hosts": {Options{Export: ExportOptions{Owner: "shop", Except: []string{"["}}}, "export.except: "},
		"a name of services": {Options{Export: ExportOptions{Owner: "shop", Name: "${port}"}}, "export.name: "},
		"an account":         {Options{ServiceAccount: "consul-${service}.v1"}, ""},
		"an account of nothing": {
			Options{ServiceAccount: "${svc}"}, `serviceAccount: "${svc}": want the name of a service account`,
		},
		"an account with a space": {Options{ServiceAccount: "Web App"}, "serviceAccount: "},
		"a protocol":              {Options{Protocol: "gopher"}, "protocol: "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(Config{Name: "x", Options: tc.o, Log: testlog.New(t)})
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a source without a name")
	}
}

// docs/consul.md lists every option.
func TestOptionsDoc(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/consul.md")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := prefix + f.Tag.Get("yaml")
			if f.Type.Kind() == reflect.Struct {
				walk(name+".", f.Type)
			} else if !strings.Contains(string(doc), fmt.Sprintf("`%s`", name)) {
				t.Errorf("docs/consul.md does not list %s", name)
			}
		}
	}
	walk("", reflect.TypeFor[Options]())
}

// Options become filter expressions of Consul, in which texts are quoted.
func TestFilters(t *testing.T) {
	t.Parallel()
	o := Options{
		Tags: []string{`a"b`, "c"}, Metadata: map[string]string{"k": "v", "j": "w"},
		NodeMetadata: map[string]string{"rack": "r1"}, Filter: `Service.Port == 80 or Service.Port == 81`,
	}
	want := "`a\"b` in Service.Tags" + ` and "c" in Service.Tags and Service.Meta["j"] == "w" and ` +
		`Service.Meta["k"] == "v" and Node.Meta["rack"] == "r1" and (Service.Port == 80 or Service.Port == 81)`
	if got := o.instanceFilter(); got != want {
		t.Errorf("instances:\ngot  %s\nwant %s", got, want)
	}
	want = "`a\"b` in ServiceTags" + ` and "c" in ServiceTags and ServiceMeta["j"] == "w" and ` +
		`ServiceMeta["k"] == "v" and NodeMeta["rack"] == "r1"`
	if got := o.nameFilter(); got != want {
		t.Errorf("names:\ngot  %s\nwant %s", got, want)
	}
}

// The settings select services by name. Consul's own service has to be named.
func TestSelects(t *testing.T) {
	t.Parallel()
	tests := []struct {
		o    Options
		name string
		want bool
	}{
		{Options{}, "web", true},
		{Options{}, "", false},
		{Options{}, "consul", false},
		{Options{Services: []string{"*"}}, "consul", false},
		{Options{Services: []string{"*", "consul"}}, "consul", true},
		{Options{Services: []string{"web-*", "db"}}, "web-1", true},
		{Options{Services: []string{"web-*", "db"}}, "api", false},
		{Options{Except: []string{"*-canary"}}, "web-canary", false},
		{Options{Services: []string{"web*"}, Except: []string{"web-x"}}, "web-x", false},
	}
	for _, tc := range tests {
		if got := tc.o.selects(tc.name); got != tc.want {
			t.Errorf("%+v: selects %q is %v, want %v", tc.o, tc.name, got, tc.want)
		}
	}
}
