package config_test

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

func TestKindNamed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]config.Kind{
		"VirtualService": config.VirtualService, "virtualservice": config.VirtualService, "virtualservices": config.VirtualService,
		"vs": config.VirtualService, "SE": config.ServiceEntry, "serviceEntries": config.ServiceEntry,
	} {
		if got, err := config.KindNamed(name); err != nil || got.Kind != want {
			t.Errorf("%s: %q, %v; want %q", name, got.Kind, err, want)
		}
	}
	for name, want := range map[string]string{"virtualservise": `did you mean "virtualservice"?`, "pod": "the accepted kinds are ",
		"vsx": `did you mean "vs"?`, "wasmplugin": "not supported yet: no proxy would run it"} {
		if _, err := config.KindNamed(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}
