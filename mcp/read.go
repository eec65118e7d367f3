package mcp

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/excerpt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// item is one resource as a server sent it.
type item struct {
	// name is what stands outside the resource; empty when nothing does.
	name string
	// typeURL and raw are the message, encoded.
	typeURL string
	raw     []byte
	res     *mcpv1.Resource // set by read
	hash    uint64          // set by sum
}

// sum tells contents apart.
func (it *item) sum(seed maphash.Seed) uint64 {
	if it.hash == 0 {
		it.hash = maphash.Bytes(seed, it.raw)
		if it.typeURL != resourceType { // the same bytes mean something else
			it.hash = it.hash*31 + maphash.String(seed, it.typeURL)
		}
	}
	return it.hash
}

// maxResource is how large a resource may be, in bytes: the largest object, with its labels and annotations. What is larger
// is not decoded, which would take many times as much.
const maxResource = config.MaxFileSize + 1<<20

// errName is why a resource cannot be told from others by itself, and errTwoNames why it cannot be at all.
var (
	errName     = errors.New(`the name in its metadata is not "namespace/name"`)
	errTwoNames = errors.New("it has two names")
)

// outside is which object the resource is by the name outside of it; false: that does not tell.
func (it *item) outside() (config.Key, bool) { return keyOf(it.name) }

// keyOf reads a name; false: it is not "namespace/name".
func keyOf(s string) (config.Key, bool) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") || len(s) > maxName || strings.ContainsFunc(s, unicode.IsControl) {
		return config.Key{}, false
	}
	return config.Key{Namespace: namespace, Name: name}, true
}

// read decodes the resource as far as its name. Errors: it does not tell which object is meant.
func (it *item) read() (key config.Key, err error) {
	switch {
	case it.res != nil: // it was read already
	case it.typeURL != resourceType:
		return key, fmt.Errorf("it is a %s, not a %s", clip(it.typeURL), resourceType)
	case len(it.raw) > maxResource:
		return key, fmt.Errorf("it has %d bytes, more than %d", len(it.raw), maxResource)
	default:
		it.res = &mcpv1.Resource{}
		if err := proto.Unmarshal(it.raw, it.res); err != nil {
			it.res = nil
			return key, fmt.Errorf("it cannot be decoded: %w", err)
		}
	}
	inside := it.res.GetMetadata().GetName()
	key, ok := keyOf(inside)
	switch {
	case !ok:
		return key, fmt.Errorf("%w: %q", errName, clip(inside))
	case it.name != "" && it.name != inside:
		return config.Key{}, fmt.Errorf("%w: it is called %q outside and %q inside", errTwoNames, clip(it.name), inside)
	}
	return key, nil
}

// maxName is how long "namespace/name" may be: a label and a DNS name.
const maxName = 63 + 1 + 253

// clip cuts a text of others short.
func clip(s string) string { return excerpt.Of(s, 200) }

// draft makes the object of a resource that was read, which nobody has looked at yet. ok is false when there is none.
func draft(source string, key config.Key, kind config.KindInfo, res *mcpv1.Resource) (o *config.Object, problems []config.Problem, ok bool) {
	m := res.GetMetadata()
	o = &config.Object{Key: key, Labels: m.GetLabels(), Annotations: m.GetAnnotations(), Revision: m.GetVersion(),
		Origin: config.Origin{Source: source}, Spec: kind.NewSpec()}
	fail := func(field, format string, args ...any) (*config.Object, []config.Problem, bool) {
		return nil, []config.Problem{{Severity: feed.Error, Object: key.String(), Field: field, Text: fmt.Sprintf(format, args...)}}, false
	}
	if t := m.GetCreateTime(); t != nil && (t.Seconds != 0 || t.Nanos != 0) {
		if err := t.CheckValid(); err != nil {
			return fail("metadata.createTime", "not a time that exists: %s", err)
		}
		o.Created = t.AsTime()
	}
	switch body := res.GetBody(); {
	case body == nil:
		return fail("body", "it is missing")
	case !isBody(kind, body.TypeUrl):
		return fail("body", "it is a %s, not a %s", clip(body.TypeUrl), kind.Kind)
	default:
		if err := proto.Unmarshal(body.Value, o.Spec); err != nil {
			return fail("body", "it cannot be decoded: %s", err)
		}
	}
	return o, nil, true
}

// equal says that a draft is what an object is already. Bytes do not tell: the order of a map's entries is any.
func equal(o, draft *config.Object) bool {
	return o.Key == draft.Key && o.Created.Equal(draft.Created) && maps.Equal(o.Labels, draft.Labels) && maps.Equal(o.Annotations, draft.Annotations) && proto.Equal(o.Spec, draft.Spec)
}
