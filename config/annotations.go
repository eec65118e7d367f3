package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// annotationPrefix begins the names of Ashore's own annotations.
const annotationPrefix = "ashore.io/"

// Ashore's own annotations. Ashore writes the last two.
const (
	// AllowAddressesAnnotation on a WorkloadGroup lists the addresses, "192.0.2.7, 10.1.0.0/16",
	// that its workloads may register although their connections come from others: behind NAT, or
	// with several.
	AllowAddressesAnnotation = annotationPrefix + "allow-addresses"
	// HealthAnnotation on a WorkloadEntry is what a registered workload reported last.
	HealthAnnotation = annotationPrefix + "health"
	// SourceAnnotation on a ServiceEntry is the kind of source that its service comes from.
	SourceAnnotation = annotationPrefix + "source"
)

// kindsOfAnnotations has the kind of each of Ashore's annotations.
func kindsOfAnnotations() map[string]Kind {
	return map[string]Kind{
		AllowAddressesAnnotation: WorkloadGroup,
		HealthAnnotation:         WorkloadEntry,
		SourceAnnotation:         ServiceEntry,
	}
}

// annotation checks an annotation of an object of a kind. It warns of one of Ashore's without
// effect.
func (c *checker) annotation(path string, kind Kind, name, value string) {
	path = entry(path, name)
	c.why(path, checkAnnotation(name, value))
	kinds := kindsOfAnnotations()
	switch of, known := kinds[name]; {
	case of == kind || !strings.HasPrefix(name, annotationPrefix):
	case known:
		c.warnf(path, "this annotation has no effect on a %s, only on a %s: remove it", kind, of)
	default:
		hint := didYouMean(name, slices.Sorted(maps.Keys(kinds)))
		c.warnf(path, "unknown annotation, without effect%s", cmp.Or(hint, ": remove it"))
	}
}
