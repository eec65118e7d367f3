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
		"nothing":                 {Options{}, ""},
		"a socket":                {Options{Address: "unix:///run/consul.sock"}, ""},
		"no scheme":               {Options{Address: "127.0.0.1:8500"}, "address: "},
		"a password":              {Options{Address: "http://a:geheim@127.0.0.1"}, "set a token with tokenFile"},
		"reads":                   {Options{Reads: "fast"}, `reads: "fast": want one of default, stale`},
		"namespace":               {Options{Namespace: "A"}, "namespace: "},
		"domain":                  {Options{Domain: "10.0.0.1"}, "domain: "},
		"all datacenters and one": {Options{Datacenters: []string{"*", "dc1"}}, "datacenters: "},
		"a datacenter":            {Options{Datacenters: []string{"dc 1"}}, "datacenters: "},
		"a pattern":               {Options{Services: []string{"["}}, "services: "},
		"a key":                   {Options{NodeMetadata: map[string]string{`x" == "`: "y"}}, "nodeMetadata: "},
		"a key without value":     {Options{Metadata: map[string]string{"a": ""}}, `metadata: "a": want a key`},
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
				Exported: []string{"shop"}}, "the mesh would read its own services",
		},
		"an owner of others": {Options{Exported: []string{"A"}}, "exported: \"A\""},
		"a lease": {
			Options{Export: ExportOptions{Owner: "shop", Lease: time.Second}}, "export.lease: 1s: want 10s to 24h0m0s",
		},
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
