package adminapi

import (
	"fmt"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/nearest"
)

// shortNames are those by which kubectl knows Istio's kinds.
// Source: istio.io/api kubernetes/customresourcedefinitions.gen.yaml, shortNames.
func shortNames() map[string]config.Kind {
	return map[string]config.Kind{
		"vs": config.VirtualService, "dr": config.DestinationRule, "gw": config.Gateway, "se": config.ServiceEntry,
		"we": config.WorkloadEntry, "wg": config.WorkloadGroup, "sc": config.Sidecar, "ap": config.AuthorizationPolicy,
		"pa": config.PeerAuthentication, "ra": config.RequestAuthentication, "telemetry": config.Telemetry,
	}
}

// kindNamed is the kind that an operator means: its name in any case, singular, plural or short.
// Errors: admin.ErrInvalid, with the nearest name.
func kindNamed(name string) (config.KindInfo, error) {
	lower := strings.ToLower(name)
	var names []string
	for _, k := range config.Kinds() {
		singular := strings.ToLower(string(k.Kind))
		if lower == singular || lower == k.Plural || shortNames()[lower] == k.Kind {
			if !k.Supported {
				return k, admin.NewError(admin.ErrInvalid, "%s is not supported yet", k.Kind)
			}
			return k, nil
		}
		if k.Supported {
			names = append(names, singular)
		}
	}
	hint := "the accepted kinds are " + strings.Join(names, ", ")
	if near := nearest.Name(lower, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return config.KindInfo{}, admin.NewError(admin.ErrInvalid, "unknown kind %q: %s", name, hint)
}
