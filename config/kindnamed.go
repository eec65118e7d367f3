package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ashore-mesh/ashore/internal/nearest"
)

// shortNames are those by which kubectl knows Istio's kinds.
// Source: istio.io/api kubernetes/customresourcedefinitions.gen.yaml, shortNames.
func shortNames() map[string]Kind {
	return map[string]Kind{
		"vs": VirtualService, "dr": DestinationRule, "gw": Gateway, "se": ServiceEntry, "we": WorkloadEntry,
		"wg": WorkloadGroup, "sc": Sidecar, "ap": AuthorizationPolicy, "pa": PeerAuthentication,
		"ra": RequestAuthentication, "telemetry": Telemetry,
	}
}

// KindNamed returns the kind that an operator means: its name in any case, singular, plural or
// short. Errors: it is unknown, with the nearest name, or not supported.
func KindNamed(name string) (KindInfo, error) {
	lower := strings.ToLower(name)
	var names []string
	for _, k := range Kinds() {
		singular := strings.ToLower(string(k.Kind))
		if lower == singular || lower == k.Plural || shortNames()[lower] == k.Kind {
			if !k.Supported {
				return k, fmt.Errorf("%s is not supported yet: %s", k.Kind, k.without)
			}
			return k, nil
		}
		if k.Supported {
			names = append(names, singular)
		}
	}
	hint := "the accepted kinds are " + strings.Join(names, ", ")
	if len(name) > 2 { // two letters are similar to too many short names
		names = append(names, slices.Sorted(maps.Keys(shortNames()))...)
	}
	if near := nearest.Name(lower, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return KindInfo{}, fmt.Errorf("unknown kind %q: %s", name, hint)
}

// Unsupported returns why a field is refused, and what to do instead; empty: it is not refused.
func Unsupported(fd protoreflect.FieldDescriptor) string {
	what, todo := unsupportedField(fd)
	if what == "" {
		return ""
	}
	return what + " is not supported yet: " + todo
}
