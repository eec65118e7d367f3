package mcp

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// resourceType is the type of all resources.
	resourceType = "type.googleapis.com/istio.mcp.v1alpha1.Resource"
	// maxResource is the most bytes of a resource: the largest object, with its labels and
	// annotations.
	maxResource = config.MaxFileSize + 1<<20
	// maxName is the most bytes of "namespace/name": a label and a DNS name.
	maxName = 63 + 1 + 253
	// mostProblems limits the problems of one object.
	mostProblems = 20
	// revisionLabel names the control plane that an object is meant for. Source: Istio,
	// label.IoIstioRev.
	revisionLabel = "istio.io/rev"
)

// item is one resource as the server sent it.
type item struct {
	kind config.KindInfo
	// name is the name in the response. It is empty over state of the world.
	name    string
	typeURL string
	raw     []byte

	inner string // the name in the resource, "namespace/name"; set by update
}

// id identifies the resource within its type, after update.
func (r *item) id() string {
	if r.name != "" {
		return r.name
	}
	return r.inner
}

// sum differs for different content.
func (r *item) sum() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(append([]byte(r.typeURL), r.raw...)) // it returns no error
	return h.Sum64()
}

// update returns the group of the resource: an object, or the problems that it has. It is empty for
// an object of another revision.
func (r *item) update(source, revision string) feed.Update[*config.Object] {
	key, res, err := r.decode()
	r.inner = key.Namespace + "/" + key.Name
	if err != nil && key.Name == "" { // it is not known which object is meant
		r.inner = ""
	}
	u := feed.Update[*config.Object]{Group: string(r.kind.Kind) + " " + r.id()}
	if r.inner == "" {
		u.Unreadable = true
		text := "a resource of the server cannot be read: " + err.Error()
		u.Problems = []feed.Problem{{Severity: feed.Error, Object: string(r.kind.Kind), Text: text}}
		return u
	}
	if rev, has := res.GetMetadata().GetLabels()[revisionLabel]; err == nil && revision != "" && has &&
		rev != revision {
		return u
	}
	var o *config.Object
	if err == nil {
		o, err = r.object(source, key, res)
	}
	if err != nil {
		u.Invalid = []string{key.String()}
		u.Problems = []feed.Problem{{Severity: feed.Error, Object: key.String(), Text: err.Error()}}
		return u
	}
	problems, ok := config.Accept(o)
	u.Problems = problems[:min(mostProblems, len(problems))]
	if ok {
		u.Items = []*config.Object{o}
	} else {
		u.Invalid = []string{key.String()}
	}
	return u
}

// decode reads the resource and its name. With an error, the key is that of the name in the response,
// or empty.
func (r *item) decode() (key config.Key, res *mcpv1.Resource, err error) {
	key, named := keyOf(r.kind.Kind, r.name)
	switch {
	case r.typeURL != resourceType:
		return key, nil, fmt.Errorf("it is a %s, not a %s", clip(r.typeURL), resourceType)
	case len(r.raw) > maxResource:
		return key, nil, fmt.Errorf("it has %d bytes, more than %d", len(r.raw), maxResource)
	}
	res = &mcpv1.Resource{}
	if err := proto.Unmarshal(r.raw, res); err != nil {
		return key, nil, fmt.Errorf("it cannot be decoded: %w", err)
	}
	inside := res.GetMetadata().GetName()
	inner, ok := keyOf(r.kind.Kind, inside)
	switch {
	case !ok:
		return key, nil, fmt.Errorf(`the name in its metadata is not "namespace/name": %q`, clip(inside))
	case r.name != "" && (!named || inner != key):
		return config.Key{}, nil, fmt.Errorf("it has two names, %q and %q", clip(r.name), inside)
	}
	return inner, res, nil
}

// keyOf parses "namespace/name". It returns false if s is something else.
func keyOf(kind config.Kind, s string) (config.Key, bool) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") ||
		len(s) > maxName || strings.ContainsFunc(s, unicode.IsControl) {
		return config.Key{}, false
	}
	return config.Key{Kind: kind, Namespace: namespace, Name: name}, true
}

// object returns the object of a resource. It is not validated.
func (r *item) object(source string, key config.Key, res *mcpv1.Resource) (*config.Object, error) {
	m := res.GetMetadata()
	o := &config.Object{
		Key: key, Labels: m.GetLabels(), Annotations: m.GetAnnotations(), Revision: m.GetVersion(),
		Origin: config.Origin{Source: source}, Spec: r.kind.NewSpec(),
	}
	if t := m.GetCreateTime(); t != nil && (t.Seconds != 0 || t.Nanos != 0) {
		if err := t.CheckValid(); err != nil {
			return nil, fmt.Errorf("metadata.createTime is not a valid time: %w", err)
		}
		o.Created = t.AsTime()
	}
	body := res.GetBody()
	if body == nil {
		return nil, errors.New("the body is missing")
	}
	if !isBody(r.kind, body.TypeUrl) {
		return nil, fmt.Errorf("the body is a %s, not a %s", clip(body.TypeUrl), r.kind.Kind)
	}
	if err := proto.Unmarshal(body.Value, o.Spec); err != nil {
		return nil, fmt.Errorf("the body cannot be decoded: %w", err)
	}
	return o, nil
}
