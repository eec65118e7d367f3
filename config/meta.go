package config

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

const (
	// listKind is Kubernetes' envelope around several objects, as kubectl writes it.
	listKind Kind = "List"
	// DefaultNamespace is that of objects that name none.
	DefaultNamespace = "default"
)

// head is the outermost level of a document.
type head struct {
	kind                  Kind
	info                  KindInfo // zero for a List
	metadata, spec, items *yaml.Node
}

// head reads the outermost level. It is not ok when the kind cannot be known. Problems of a
// document without a known kind quote none of its text: it may be any file, a key say.
func (d *decoder) head() (h head, ok bool) {
	root := deref(d.lines.root)
	if root.Kind != yaml.MappingNode {
		d.errorf(root, "want an object with apiVersion, kind, metadata and spec, not %s", shapeOf(root))
		return h, false
	}
	kind := d.kindOf(root)
	if isNull(kind) || kind.Kind != yaml.ScalarNode {
		d.errorf(root, "the kind is missing: write apiVersion and kind, such as networking.istio.io/v1 and VirtualService")
		return h, false
	}
	h.kind = Kind(kind.Value)
	if h.kind != listKind && !d.kind(&h, kind) {
		return h, false
	}
	var apiVersion *yaml.Node
	doubled := d.doubled
	d.fields(root, func(key, value *yaml.Node) {
		switch key.Value {
		case "apiVersion":
			apiVersion = deref(value)
		case "kind":
		case "metadata":
			h.metadata = deref(value)
		case "spec":
			h.spec = deref(value)
		case "items":
			h.items = deref(value)
		case "status": // written by others about the object, never read
		default:
			d.unknown(key, []string{"apiVersion", "kind", "metadata", "spec", "status", "items"})
		}
	})
	if d.doubled != doubled {
		d.unread = true // there may be another object in it, of which nothing is known
	}
	if h.kind == listKind {
		return h, true
	}
	if h.items != nil {
		d.at("items").errorf(h.items, "unknown field: only a List has items")
		d.pop()
	}
	return h, d.version(&h, root, apiVersion)
}

// kindOf is the value of the field kind; nil when there is none. It reports nothing.
func (d *decoder) kindOf(root *yaml.Node) (kind *yaml.Node) {
	silent := &decoder{parser: &parser{maxVisits: d.maxVisits}, lines: d.lines}
	silent.fields(root, func(key, value *yaml.Node) {
		if key.Value == "kind" {
			kind = deref(value)
		}
	})
	return kind
}

// kind finds out which kind is meant.
func (d *decoder) kind(h *head, n *yaml.Node) bool {
	names, supported := make([]string, 0, len(d.kinds)), make([]string, 0, len(d.kinds))
	for _, info := range d.kinds {
		if info.Kind == h.kind {
			h.info = info
			return true
		}
		names = append(names, string(info.Kind))
		if info.Supported {
			supported = append(supported, string(info.Kind))
		}
	}
	hint := didYouMean(n.Value, names)
	if hint == "" {
		hint = "; Ashore takes only " + strings.Join(supported, ", ") + ": remove this object"
	}
	name := ""
	if isLabel(n.Value, true, 63) {
		name = " " + quote(n.Value)
	}
	d.at("kind").errorf(n, "unknown kind%s%s", name, hint)
	d.pop()
	return false
}

// version reports an apiVersion that the kind never had. The kind is known all the same.
func (d *decoder) version(h *head, root, n *yaml.Node) bool {
	if isNull(n) || n.Kind != yaml.ScalarNode {
		d.at("apiVersion").errorf(root, "the apiVersion is missing: write %s", h.info.APIVersion())
		d.pop()
		return true
	}
	group, version, _ := strings.Cut(n.Value, "/")
	if group == h.info.Group {
		for _, v := range h.info.Versions {
			if v == version {
				return true
			}
		}
	}
	d.at("apiVersion").errorf(n, "%s is not a version of %s: write %s", quote(n.Value), h.kind, h.info.APIVersion())
	d.pop()
	return true
}

// object reads metadata and spec. It is not ok when the key cannot be known.
func (d *decoder) object(h head) (*Object, bool) {
	o := &Object{Origin: Origin{File: d.file, Line: d.lines.line(deref(d.lines.root))}}
	o.Kind = h.kind
	if !d.metadata(o, h) {
		return nil, false
	}
	d.about = o.Key.String()
	o.Spec = h.info.NewSpec()
	if isNull(h.spec) {
		d.at("spec").errorf(d.lines.root, "the spec is missing or empty")
		d.pop()
		return o, true
	}
	d.at("spec")
	d.guarded = !d.kept
	d.message(o.Spec.ProtoReflect(), h.spec)
	d.pop()
	if p := proto.Size(o.Spec); p > MaxFileSize {
		d.errorf(d.lines.root, "the object has %d bytes, more than %d", p, MaxFileSize)
	}
	return o, true
}

// metadata reads the metadata. It is not ok when there is no proper name or namespace.
func (d *decoder) metadata(o *Object, h head) bool {
	n := h.metadata
	d.at("metadata")
	defer d.pop()
	if isNull(n) || n.Kind != yaml.MappingNode {
		d.errorf(d.lines.root, "the metadata is missing: write at least metadata.name")
		return false
	}
	o.Namespace = DefaultNamespace
	d.about = d.aboutOf(o.Kind, n)
	named, ok := false, true
	d.fields(n, func(key, value *yaml.Node) {
		d.at(key.Value)
		defer d.pop()
		value = deref(value)
		switch key.Value {
		case "name":
			named = true
			o.Name, ok = d.objectName(value, ok)
		case "namespace":
			switch empty := isNull(value) || value.Kind == yaml.ScalarNode && value.Value == ""; {
			case empty && h.info.Protects && !d.kept:
				d.errorf(key, "there is nothing in it, as if it were left out, and then it is %q: write the namespace, or remove the field if that is meant", DefaultNamespace)
				ok = false
			case !empty:
				o.Namespace, ok = d.namespace(value, ok)
			}
		case "labels":
			o.Labels = d.stringMap(value, checkLabel)
		case "annotations":
			o.Annotations = d.stringMap(value, checkAnnotation)
		case "creationTimestamp":
			o.Created = d.timestamp(value)
		case "uid", "resourceVersion", "generation", "managedFields", "selfLink", "ownerReferences", "finalizers",
			"generateName", "deletionTimestamp", "deletionGracePeriodSeconds", "clusterName":
			// Kubernetes' own bookkeeping, in what kubectl prints; without effect here.
		default:
			d.pop()
			d.unknown(key, []string{"name", "namespace", "labels", "annotations", "creationTimestamp"})
			d.at(key.Value)
			ok = false // it may have been the name or the namespace
		}
	})
	if !named {
		d.at("name").errorf(n, "the name is missing: every object needs one")
		d.pop()
	}
	return named && ok
}

// aboutOf is the key in words as far as it can be read, for problems that come before the key is
// known.
func (d *decoder) aboutOf(kind Kind, metadata *yaml.Node) string {
	k := Key{Kind: kind, Namespace: DefaultNamespace}
	for i := 0; i+1 < len(metadata.Content); i += 2 {
		value := deref(metadata.Content[i+1])
		switch {
		case isNull(value) || value.Kind != yaml.ScalarNode:
		case metadata.Content[i].Value == "name":
			k.Name = shorten(value.Value)
		case metadata.Content[i].Value == "namespace":
			k.Namespace = shorten(value.Value)
		}
	}
	if k.Name == "" {
		return ""
	}
	return k.String()
}

// objectName reads metadata.name.
func (d *decoder) objectName(n *yaml.Node, ok bool) (string, bool) {
	name, isText := d.text(n)
	if !isText {
		return "", false
	}
	if why := checkObjectName(name); why != "" {
		d.errorf(n, "%s", why)
		return "", false
	}
	return name, ok
}

// namespace reads metadata.namespace.
func (d *decoder) namespace(n *yaml.Node, ok bool) (string, bool) {
	name, isText := d.text(n)
	if !isText {
		return "", false
	}
	if why := checkDNSLabel(name); why != "" {
		d.errorf(n, "%s", why)
		return "", false
	}
	return name, ok
}

// timestamp reads a creation time; null is none.
func (d *decoder) timestamp(n *yaml.Node) time.Time {
	if isNull(n) {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, n.Value)
	if err != nil {
		d.errorf(n, "%s is not a time: write it as 2006-01-02T15:04:05Z", quote(n.Value))
		return time.Time{}
	}
	return t.UTC()
}

// stringMap reads labels or annotations; check says what is wrong with an entry.
func (d *decoder) stringMap(n *yaml.Node, check func(key, value string) string) map[string]string {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.errorf(n, "want names and values, not %s", describe(n))
		return nil
	}
	m := make(map[string]string, len(n.Content)/2)
	d.fields(n, func(key, value *yaml.Node) {
		d.key(key.Value)
		defer d.pop()
		text, ok := d.text(deref(value))
		if !ok {
			return
		}
		if why := check(key.Value, text); why != "" {
			d.errorf(key, "%s", why)
			return
		}
		m[key.Value] = text
	})
	if len(m) == 0 {
		return nil
	}
	return m
}
