package config

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
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
	root := deref(d.root)
	if root.Kind != yaml.MappingNode {
		d.errorf("", root, "want an object with apiVersion, kind, metadata and spec, not %s", shapeOf(root))
		return h, false
	}
	kind := valueOf(root, "kind")
	if isNull(kind) || kind.Kind != yaml.ScalarNode {
		d.errorf("", root, "the kind is missing: write apiVersion and kind, such as networking.istio.io/v1 and VirtualService")
		return h, false
	}
	h.kind = Kind(kind.Value)
	if h.kind != listKind && !d.kind(&h, kind) {
		return h, false
	}
	var apiVersion *yaml.Node
	d.fields("", root, func(key, value *yaml.Node) {
		d.where[key.Value] = key.Line
		switch key.Value {
		case "apiVersion":
			apiVersion = value
		case "metadata":
			h.metadata = value
		case "spec":
			h.spec = value
		case "items":
			h.items = value
		case "kind", "status": // the status is written by others about the object, and never read
		default:
			d.unknown("", key, []string{"apiVersion", "kind", "metadata", "spec", "status", "items"})
		}
	})
	if h.kind == listKind {
		return h, true
	}
	if h.items != nil {
		d.errorf("items", h.items, "unknown field: only a List has items")
	}
	d.version(h, root, apiVersion)
	return h, true
}

// valueOf is the value of a field that is written with exactly this name; nil when there is none.
func valueOf(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return deref(n.Content[i+1])
		}
	}
	return nil
}

// kind finds out which kind is meant.
func (d *decoder) kind(h *head, n *yaml.Node) bool {
	var accepted []string
	for _, info := range d.kinds {
		if info.Kind == h.kind {
			h.info = info
			return true
		}
		if info.Supported {
			accepted = append(accepted, string(info.Kind))
		}
	}
	hint := didYouMean(n.Value, accepted)
	if hint == "" {
		hint = ": the accepted kinds are " + strings.Join(accepted, ", ") + "; remove this object"
	}
	name := ""
	if isLabel(n.Value, true, 63) {
		name = " " + quote(n.Value)
	}
	d.errorf("kind", n, "unknown kind%s%s", name, hint)
	return false
}

// version reports an apiVersion that the kind never had.
func (d *decoder) version(h head, root, n *yaml.Node) {
	if isNull(n) || n.Kind != yaml.ScalarNode {
		d.errorf("apiVersion", root, "the apiVersion is missing: write %s", h.info.APIVersion())
		return
	}
	group, version, _ := strings.Cut(n.Value, "/")
	if group != h.info.Group || !slices.Contains(h.info.Versions, version) {
		d.errorf("apiVersion", n, "%s is not a version of %s: write %s", quote(n.Value), h.kind,
			h.info.APIVersion())
	}
}

// object reads metadata and spec. It is not ok when the key cannot be known. The spec of a kind that
// is not supported is left empty: the object is refused in any case.
func (d *decoder) object(h head) (*Object, bool) {
	o := &Object{Origin: Origin{File: d.file, Line: deref(d.root).Line}}
	o.Kind = h.kind
	if !d.metadata(o, h) {
		return nil, false
	}
	d.about = o.Key.String()
	o.Spec = h.info.NewSpec()
	if h.spec == nil { // the same as {}
		return o, true
	}
	if isNull(h.spec) {
		d.errorf("spec", h.spec, "the spec is empty: write it, or {}")
		return o, true
	}
	if !h.info.Supported {
		return o, true
	}
	d.guarded = true
	d.message("spec", o.Spec.ProtoReflect(), deref(h.spec))
	return o, true
}

// metadata reads the metadata. It is not ok when there is no proper name or namespace.
func (d *decoder) metadata(o *Object, h head) (ok bool) {
	n := h.metadata
	if isNull(n) || n.Kind != yaml.MappingNode {
		d.errorf("metadata", d.root, "the metadata is missing: write at least metadata.name")
		return false
	}
	o.Namespace = DefaultNamespace
	named, ok := false, true
	d.fields("metadata", n, func(key, value *yaml.Node) {
		path := below("metadata", key.Value)
		d.where[path] = key.Line
		switch key.Value {
		case "name":
			named = true
			o.Name = d.nameOf(path, value, checkObjectName, &ok)
		case "namespace":
			switch empty := isEmpty(value); {
			case empty && h.info.Protects:
				d.errorf(path, key, "the namespace is empty, which means %q: write it, or remove the field",
					DefaultNamespace)
				ok = false
			case !empty:
				o.Namespace = d.nameOf(path, value, checkDNSLabel, &ok)
			}
		case "labels":
			o.Labels = d.stringMap(path, value)
		case "annotations":
			o.Annotations = d.stringMap(path, value)
		case "creationTimestamp":
			o.Created = d.timestamp(path, value)
		case "uid", "resourceVersion", "generation", "managedFields", "selfLink", "ownerReferences", "finalizers",
			"generateName", "deletionTimestamp", "deletionGracePeriodSeconds", "clusterName":
			// Kubernetes' own bookkeeping, in what kubectl prints; without effect here.
		default:
			d.unknown("metadata", key, []string{"name", "namespace", "labels", "annotations", "creationTimestamp"})
			ok = false // it may have been the name or the namespace
		}
	})
	if !named {
		d.errorf("metadata.name", n, "the name is missing: every object needs one")
	}
	return named && ok
}

// nameOf reads a name or namespace, and sets ok to false when it is none.
func (d *decoder) nameOf(path string, n *yaml.Node, check func(string) string, ok *bool) string {
	name, isText := d.readText(path, n)
	why := ""
	if isText {
		why = check(name)
	}
	if why != "" {
		d.errorf(path, n, "%s", why)
	}
	*ok = *ok && isText && why == ""
	return name
}

// timestamp reads a creation time; null is none.
func (d *decoder) timestamp(path string, n *yaml.Node) time.Time {
	if isNull(n) {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, n.Value)
	if err != nil {
		d.errorf(path, n, "%s is not a time: write it as 2006-01-02T15:04:05Z", quote(n.Value))
		return time.Time{}
	}
	return t.UTC()
}

// stringMap reads labels or annotations; nil when there are none.
func (d *decoder) stringMap(path string, n *yaml.Node) map[string]string {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.errorf(path, n, "want names and values, not %s", describe(n))
		return nil
	}
	var m map[string]string
	d.fields(path, n, func(key, value *yaml.Node) {
		path := entry(path, key.Value)
		d.where[path] = key.Line
		text, ok := d.readText(path, value)
		if !ok {
			return
		}
		if m == nil {
			m = make(map[string]string, len(n.Content)/2)
		}
		m[key.Value] = text
	})
	return m
}
