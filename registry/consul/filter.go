package consul

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// nothing is an expression that holds for no instance: an answer to it has an index and no instances.
const nothing = `Service.ID == ""`

// instanceFilter is the expression for instances that count, as /v1/health/service takes it; empty: all do.
func (o Options) instanceFilter() string {
	var parts []string
	for _, t := range o.Tags {
		parts = append(parts, quote(t)+" in Service.Tags")
	}
	parts = append(parts, pairs("Service.Meta", o.Metadata)...)
	parts = append(parts, pairs("Node.Meta", o.NodeMetadata)...)
	if o.Filter != "" {
		parts = append(parts, "("+o.Filter+")")
	}
	return strings.Join(parts, " and ")
}

// nameFilter is the one for names of services with an instance that may count, as /v1/catalog/services takes it.
func (o Options) nameFilter() string {
	var parts []string
	for _, t := range o.Tags {
		parts = append(parts, quote(t)+" in ServiceTags")
	}
	parts = append(parts, pairs("ServiceMeta", o.Metadata)...)
	parts = append(parts, pairs("NodeMeta", o.NodeMetadata)...)
	if o.Export.on() { // else there may be so few of them that going through all instances is not worth while
		own := quote(keyOwner) + " not in ServiceMeta"
		for _, owner := range o.Exported {
			own += " or ServiceMeta[" + quote(keyOwner) + "] == " + quote(owner)
		}
		parts = append(parts, "("+own+")")
	}
	return strings.Join(parts, " and ")
}

func pairs(selector string, want map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		out = append(out, selector+"["+quote(k)+"] == "+quote(want[k]))
	}
	return out
}

// quote writes a text as Consul's expressions do: in quotes, or in backquotes where it has what quotes cannot hold.
func quote(s string) string {
	if strings.ContainsAny(s, "\"\\") && !strings.Contains(s, "`") {
		return "`" + s + "`"
	}
	return strconv.Quote(s)
}

// counts says whether a service of this name may count.
func (o Options) counts(name string) bool {
	switch {
	case name == "":
		return false
	case name == "consul" && !o.ConsulService:
		return false
	case len(o.Services) > 0 && !matches(o.Services, name):
		return false
	}
	return !matches(o.Except, name)
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}
