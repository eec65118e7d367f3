package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Validate returns the problems of o. It is the single gate for objects of all sources: an object
// with an error must not take effect. Lines are those of o.Origin; Parse, which
// has the text, puts the field's own line there.
func Validate(o *Object) []Problem {
	info, ok := Info(o.Kind)
	c := checker{object: o}
	if !ok {
		c.errorf("kind", "unknown kind %s: Ashore does not accept it", quote(string(o.Kind)))
		return c.problems
	}
	c.metadata()
	switch {
	case o.Spec == nil || o.Spec.ProtoReflect().Descriptor() != info.NewSpec().ProtoReflect().Descriptor():
		c.errorf("spec", "the spec is not that of a %s", o.Kind)
	case !info.Supported:
		c.errorf("", "%s is not supported yet: %s; remove it", o.Kind, info.without)
	default:
		c.walk("spec", o.Spec.ProtoReflect())
	}
	return c.problems
}

// checker collects what is wrong with one object. Its checks take the path of what they check,
// "spec.http[0].timeout".
type checker struct {
	object   *Object
	problems []Problem

	hosts    hostSet         // of a VirtualService
	gateways map[string]bool // that a VirtualService is bound to, by full name
	delegate bool            // the VirtualService has no hosts, so that others delegate to it
}

// metadata checks what all kinds share.
func (c *checker) metadata() {
	c.why("metadata.name", checkObjectName(c.object.Name))
	c.why("metadata.namespace", checkDNSLabel(c.object.Namespace))
	for _, k := range slices.Sorted(maps.Keys(c.object.Labels)) {
		c.why(entry("metadata.labels", k), checkLabel(k, c.object.Labels[k]))
	}
	if _, tried := c.object.Annotations[dryRunAnnotation]; tried && c.object.Kind != AuthorizationPolicy {
		c.errorf(entry("metadata.annotations", dryRunAnnotation),
			"only an AuthorizationPolicy can be tried, this %s would be enforced: remove the annotation", c.object.Kind)
	}
	for _, k := range slices.Sorted(maps.Keys(c.object.Annotations)) {
		c.annotation("metadata.annotations", c.object.Kind, k, c.object.Annotations[k])
	}
}

func (c *checker) errorf(path, format string, args ...any) {
	c.add(feed.Error, path, fmt.Sprintf(format, args...))
}

func (c *checker) warnf(path, format string, args ...any) {
	c.add(feed.Warning, path, fmt.Sprintf(format, args...))
}

// unsupported refuses a field or value that would otherwise be accepted and ignored. what begins the
// sentence, todo ends it.
func (c *checker) unsupported(path, what, todo string) {
	c.errorf(path, "%s is not supported yet: %s", what, todo)
}

// deprecated warns of a field that Istio replaced by another, and refuses it beside its successor.
func (c *checker) deprecated(path, instead string, both bool) {
	if both {
		c.errorf(path, "this deprecated field has no effect beside its successor: remove it")
		return
	}
	c.warnf(path, "this field is deprecated: write %s", instead)
}

// why reports a reason; an empty one means that there is nothing wrong.
func (c *checker) why(path, reason string) {
	if reason != "" {
		c.errorf(path, "%s", reason)
	}
}

func (c *checker) add(severity feed.Severity, path, text string) {
	c.problems = append(c.problems, Problem{
		Severity: severity,
		Object:   c.object.Key.String(),
		Field:    path,
		File:     c.object.Origin.File,
		Line:     c.object.Origin.Line,
		Text:     text,
	})
}

// at is the path of an item of the list at path.
func at(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// entry is the path of an entry of the map at path.
func entry(path, key string) string { return path + "[" + key + "]" }
