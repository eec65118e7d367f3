package mcp

import (
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
)

// typeURLs are the names of a kind over xDS, the newest version first:
// "networking.istio.io/v1/Gateway".
func typeURLs(i config.KindInfo) []string {
	out := make([]string, len(i.Versions))
	for n, version := range i.Versions {
		out[n] = i.Group + "/" + version + "/" + string(i.Kind)
	}
	return out
}

// isBody reports whether a message of that type is the spec of a kind. All versions of a kind have
// the same encoding.
func isBody(i config.KindInfo, typeURL string) bool {
	_, name, ok := strings.Cut(typeURL, "/")
	if !ok {
		return false
	}
	group, _, _ := strings.Cut(i.Group, ".")
	rest, ok := strings.CutPrefix(name, "istio."+group+".")
	if !ok {
		return false
	}
	version, kind, ok := strings.Cut(rest, ".")
	return ok && kind == string(i.Kind) && slices.Contains([]string{"v1", "v1beta1", "v1alpha3", "v1alpha1"}, version)
}
