package adminapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/push"
)

// maxWritten is how many objects of one change are recorded one by one.
const maxWritten = 50

// ConfigAudit records which objects became active. Files do not say who wrote them: the actor is
// the source. A change that was made while ashored was down shows as another digest at the start.
type ConfigAudit struct {
	Record func(audit.Event) // set before use
	Store  string            // set before use: the name of the store, whose writes are recorded already

	// The rest is owned by the goroutine that publishes.

	last  push.Objects
	begun bool
}

// Published records what changed since the last context.
func (w *ConfigAudit) Published(objects push.Objects) {
	last, begun := w.last, w.begun
	w.last, w.begun = objects, true
	if !begun {
		w.Record(audit.Event{Action: audit.ConfigWrite, Actor: "ashored", Target: "everything",
			Reason:  "read at the start",
			Details: map[string]string{"objects": strconv.Itoa(objects.Len()), "sha256": digest(objects)}})
		return
	}
	n := 0
	for c := range objects.Diff(last) {
		if c.HadOld && c.HasNew && c.Old.Hash == c.New.Hash {
			continue // it stands elsewhere now
		}
		if w.Store != "" && w.recorded(c.Old) && w.recorded(c.New) {
			continue
		}
		if n++; n <= maxWritten {
			w.Record(change(c.Old, c.New))
		}
	}
	if n > maxWritten {
		w.Record(audit.Event{Action: audit.ConfigWrite, Actor: "ashored", Target: "everything",
			Reason:  fmt.Sprintf("%d more objects were changed at once", n-maxWritten),
			Details: map[string]string{"objects": strconv.Itoa(objects.Len()), "sha256": digest(objects)}})
	}
}

// recorded says that an object, nil when there is none, is one of the store.
func (w *ConfigAudit) recorded(o *config.Object) bool { return o == nil || o.Origin.Source == w.Store }

// change is the event of one object; one of the two may be nil.
func change(old, now *config.Object) audit.Event {
	o := cmp.Or(now, old)
	e := audit.Event{Action: audit.ConfigWrite, Actor: o.Origin.Source, Target: o.Key.String(),
		Details: map[string]string{}}
	if o.Origin.File != "" {
		e.Details["file"] = o.Origin.File + ":" + strconv.Itoa(o.Origin.Line)
	}
	if old != nil {
		e.Details["before"] = contentHash(old)
	}
	if now != nil {
		e.Details["sha256"] = contentHash(now)
	}
	switch {
	case old == nil:
		e.Reason = "created"
	case now == nil:
		e.Reason = "deleted"
	default:
		e.Reason, e.Details["difference"] = "changed", difference(old, now)
	}
	return e
}

// difference names the fields in which two versions of an object differ, never what is in them.
func difference(old, now *config.Object) string {
	var out []string
	if !maps.Equal(old.Labels, now.Labels) {
		out = append(out, "metadata.labels")
	}
	if !maps.Equal(old.Annotations, now.Annotations) {
		out = append(out, "metadata.annotations")
	}
	if !old.Created.Equal(now.Created) {
		out = append(out, "metadata.creationTimestamp")
	}
	a, b := old.Spec.ProtoReflect(), now.Spec.ProtoReflect()
	for i := range b.Descriptor().Fields().Len() {
		f := b.Descriptor().Fields().Get(i)
		if a.Has(f) != b.Has(f) || a.Has(f) && !alike(f, a, b) {
			out = append(out, "spec."+f.JSONName())
		}
	}
	return strings.Join(out, ", ")
}

// alike says that a field of two messages holds the same.
func alike(f protoreflect.FieldDescriptor, a, b protoreflect.Message) bool {
	return a.Get(f).Equal(b.Get(f))
}

// contentHash is the SHA-256 of what an object says, the same on every replica of one version.
func contentHash(o *config.Object) string {
	h := sha256.New()
	for _, m := range []map[string]string{o.Labels, o.Annotations} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			_, _ = fmt.Fprintf(h, "%q=%q\n", k, m[k]) // a hash takes everything
		}
		_, _ = h.Write([]byte{'\n'})
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(o.Spec)
	if err != nil { // text that is no UTF-8, which validation refuses
		return "none: " + err.Error()
	}
	_, _ = h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// digest is that of all objects.
func digest(objects push.Objects) string {
	h := sha256.New()
	for key, o := range objects.All() {
		_, _ = fmt.Fprintf(h, "%s %s\n", key, contentHash(o)) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}
