package config

import (
	"slices"
	"strings"
	"testing"
)

// Every kind has all that the others rely on, once.
func TestKinds(t *testing.T) {
	t.Parallel()
	kinds := Kinds()
	if !slices.IsSortedFunc(kinds, func(a, b KindInfo) int { return strings.Compare(string(a.Kind), string(b.Kind)) }) {
		t.Error("kinds are not in the order of their names")
	}
	seen := map[string]bool{}
	for _, i := range kinds {
		if seen[i.Plural] || seen[string(i.Kind)] {
			t.Errorf("%s stands twice", i.Kind)
		}
		seen[i.Plural], seen[string(i.Kind)] = true, true
		if name := i.NewSpec().ProtoReflect().Descriptor().Name(); string(name) != string(i.Kind) {
			t.Errorf("%s: the spec is a %s", i.Kind, name)
		}
		if len(i.Versions) == 0 || i.Group == "" || i.Supported == (i.without != "") {
			t.Errorf("%s: incomplete: %+v", i.Kind, i)
		}
	}
	for _, k := range []Kind{VirtualService, DestinationRule, Gateway, ServiceEntry, WorkloadEntry, WorkloadGroup,
		Sidecar, EnvoyFilter,
		ProxyConfig, PeerAuthentication, RequestAuthentication, AuthorizationPolicy, Telemetry, WasmPlugin, TrafficExtension} {
		if _, ok := Info(k); !ok {
			t.Errorf("%s is not in the table", k)
		}
	}
	if _, ok := Info("Deployment"); ok {
		t.Error("Info knows a kind that is not one")
	}
}

// A store or a webhook hands in objects that Parse never saw.
func TestValidateForeignObject(t *testing.T) {
	t.Parallel()
	spec := mustParse(t, "web.yaml", web)[0].Spec
	for _, c := range []struct {
		name string
		o    Object
		want string
	}{
		{"kind", Object{Key: Key{"Deployment", "a", "b"}, Spec: spec}, "unknown kind"},
		{"no spec", Object{Key: Key{ServiceEntry, "a", "b"}}, "not that of a ServiceEntry"},
		{"other spec", Object{Key: Key{Gateway, "a", "b"}, Spec: spec}, "not that of a Gateway"},
		{"name", Object{Key: Key{ServiceEntry, "a", ""}, Spec: spec}, "name is missing"},
		{"namespace", Object{Key: Key{ServiceEntry, "A", "b"}, Spec: spec}, "is not a name"},
		{"label", Object{Key: Key{ServiceEntry, "a", "b"}, Labels: map[string]string{"a b": ""}, Spec: spec}, "is not a key"},
		{"annotation", Object{Key: Key{ServiceEntry, "a", "b"}, Annotations: map[string]string{"a": "\xff"}, Spec: spec}, "not UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.o.Origin = Origin{File: "web.yaml", Line: 7}
			got := Validate(&c.o)
			if len(got) != 1 || !strings.Contains(got[0].Text, c.want) || got[0].Severity != "error" {
				t.Fatalf("got %v, want one error with %q", got, c.want)
			}
			if got[0].File != "web.yaml" || got[0].Line != 7 || got[0].Object == "" {
				t.Errorf("place: got %+v, want that of the object", got[0])
			}
		})
	}
}

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	names := []string{"hosts", "http", "httpsRedirect", "exportTo"}
	for _, c := range []struct{ name, want string }{
		{"host", "hosts"}, {"HOSTS", "hosts"}, {"htpp", "http"}, {"exprotTo", "exportTo"}, {"httpRedirect", "httpsRedirect"},
		{"color", ""}, {"", ""}, {strings.Repeat("hosts", 1000), ""},
	} {
		if got := meant(c.name, names); got != c.want {
			t.Errorf("meant(%.20q) = %q, want %q", c.name, got, c.want)
		}
	}
}

// A hint is not looked for among thousands of names.
func TestMeantBound(t *testing.T) {
	t.Parallel()
	names := make([]string, 1000)
	names[0] = "hosts"
	if got := meant("host", names); got != "" {
		t.Errorf("meant among 1000 names = %q, want none", got)
	}
}

func TestResolveHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ short, want string }{
		{"web", "web.shop.svc.cluster.local"},
		{"web.example", "web.example"},
		{"*", "*"},
		{"*.example", "*.example"},
		{"*-web", "*-web"},
		{"::1", "::1"},
		{"", ""},
	} {
		if got := ResolveHost(c.short, "shop", "cluster.local"); got != c.want {
			t.Errorf("ResolveHost(%q) = %q, want %q", c.short, got, c.want)
		}
	}
}
