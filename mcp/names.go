package mcp

import (
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
)

// resourceType is the type of everything that travels over xDS, whatever its kind.
const resourceType = "type.googleapis.com/istio.mcp.v1alpha1.Resource"

// list is a name under which a server is asked for a kind: a type over xDS, a collection of the older protocol. A kind has
// had several, and a server answers an unknown one with nothing, as if there were no objects.
type list struct {
	name string
	kind config.KindInfo
	// rank orders the names of a kind, the one that counts first.
	rank int
}

// typeNames are the names of a kind over xDS, the newest first: "networking.istio.io/v1/Gateway".
func typeNames(i config.KindInfo) []list {
	out := make([]list, len(i.Versions))
	for rank, version := range i.Versions {
		out[rank] = list{name: i.Group + "/" + version + "/" + string(i.Kind), kind: i, rank: rank}
	}
	return out
}

// collections are those of the older protocol that hold kinds of today. The first ones are what Istio 1.8 asked for, the
// others were there before.
// Source: istio/istio 1.8, pkg/config/schema/metadata.yaml, snapshot default; 1.4 for the synthetic ones.
func collections() (usual, older []list) {
	for _, i := range config.Kinds() {
		version := map[string]string{"networking.istio.io": "v1alpha3", "security.istio.io": "v1beta1"}[i.Group]
		if version == "" || i.Kind == config.ProxyConfig {
			continue // younger than the protocol
		}
		group, _, _ := strings.Cut(i.Group, ".")
		usual = append(usual, list{name: "istio/" + group + "/" + version + "/" + i.Plural, kind: i})
		if i.Kind == config.ServiceEntry {
			older = append(older, list{name: "istio/networking/v1alpha3/synthetic/serviceentries", kind: i, rank: 1})
		}
	}
	return usual, older
}

// collectionsOf finds the collections of these names; none: the usual ones. unknown is a name that there is not.
func collectionsOf(names []string) (lists []list, unknown string) {
	usual, older := collections()
	if len(names) == 0 {
		return usual, ""
	}
	all := append(usual, older...)
	for _, name := range names {
		i := slices.IndexFunc(all, func(l list) bool { return l.name == name })
		if i < 0 {
			return nil, name
		}
		if !slices.ContainsFunc(lists, func(l list) bool { return l.name == name }) {
			lists = append(lists, all[i])
		}
	}
	return lists, ""
}

// isBody says whether a message of that type holds the specification of a kind. The versions of a kind are one message on
// the wire.
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
