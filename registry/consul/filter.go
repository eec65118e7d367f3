package consul

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// consulService is the name of Consul's own service. Its instances are the servers.
const consulService = "consul"

// instanceFilter returns the filter of /v1/health/service for the instances that the settings
// select. Empty if they select all.
func (o *Options) instanceFilter() string {
	parts := o.filters("Service.Tags", "Service.Meta", "Node.Meta")
	if o.Filter != "" {
		parts = append(parts, "("+o.Filter+")")
	}
	return strings.Join(parts, " and ")
}

// nameFilter returns the filter of /v1/catalog/services for services that have such an instance.
func (o *Options) nameFilter() string {
	parts := o.filters("ServiceTags", "ServiceMeta", "NodeMeta")
	// Only exclude exported entries if this mesh exports: otherwise they are few and the filter
	// costs more than it saves.
	if o.Export.on() {
		owned := quote(keyOwner) + " not in ServiceMeta"
		for _, owner := range o.Exported {
			owned += " or ServiceMeta[" + quote(keyOwner) + "] == " + quote(owner)
		}
		parts = append(parts, "("+owned+")")
	}
	return strings.Join(parts, " and ")
}

// filters returns the conditions for tags, metadata and nodeMetadata, with the given selector
// names.
func (o *Options) filters(tags, meta, nodeMeta string) (out []string) {
	for _, t := range o.Tags {
		out = append(out, quote(t)+" in "+tags)
	}
	for _, k := range slices.Sorted(maps.Keys(o.Metadata)) {
		out = append(out, meta+"["+quote(k)+"] == "+quote(o.Metadata[k]))
	}
	for _, k := range slices.Sorted(maps.Keys(o.NodeMetadata)) {
		out = append(out, nodeMeta+"["+quote(k)+"] == "+quote(o.NodeMetadata[k]))
	}
	return out
}

// quote returns s as a filter literal. go-bexpr needs backquotes for quotes and backslashes.
func quote(s string) string {
	if strings.ContainsAny(s, "\"\\") && !strings.Contains(s, "`") {
		return "`" + s + "`"
	}
	return strconv.Quote(s)
}

// selects reports whether the settings select services of this name. Consul's own service has to be
// named.
func (o *Options) selects(name string) bool {
	switch {
	case name == "", matches(o.Except, name):
		return false
	case name == consulService:
		return slices.Contains(o.Services, name)
	}
	return len(o.Services) == 0 || matches(o.Services, name)
}

// matches reports whether a name matches one of the patterns, in which * means any text.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}
