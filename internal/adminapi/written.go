package adminapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

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
	all := audit.Event{Action: audit.ConfigWrite, Actor: "ashored", Target: "everything", Reason: "read at the start"}
	if !begun {
		all.Details = digest(objects.Len(), objects.All())
		w.Record(all)
		return
	}
	n := 0
	for c := range objects.Diff(last) {
		switch {
		case c.HadOld && c.HasNew && c.Old.Hash == c.New.Hash: // it is defined elsewhere now
		case w.Store != "" && w.recorded(c.Old) && w.recorded(c.New):
		default:
			if n++; n <= maxWritten {
				w.Record(change(c.Old, c.New))
			}
		}
	}
	if n > maxWritten {
		all.Reason, all.Details = moreChanged(n), digest(objects.Len(), objects.All())
		w.Record(all)
	}
}

// recorded says that an object, nil when there is none, is one of the store.
func (w *ConfigAudit) recorded(o *config.Object) bool { return o == nil || o.Origin.Source == w.Store }

// moreChanged is the reason of the event about the changes beyond the first ones.
func moreChanged(n int) string {
	return fmt.Sprintf("%d more objects were changed at once", n-maxWritten)
}

// change returns the event of one object; one of the two may be nil.
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

// difference names the fields in which two versions of an object differ, never their content.
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
		if a.Has(f) != b.Has(f) || a.Has(f) && !a.Get(f).Equal(b.Get(f)) {
			out = append(out, "spec."+f.JSONName())
		}
	}
	return strings.Join(out, ", ")
}

// contentHash is the SHA-256 of an object's content, the same on every replica of one release.
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

// digest returns the number and the SHA-256 of n objects, as details of an event. A nil object is a
// deleted one.
func digest(n int, objects iter.Seq2[config.Key, *config.Object]) map[string]string {
	h := sha256.New()
	for key, o := range objects {
		content := ""
		if o != nil {
			content = contentHash(o)
		}
		_, _ = fmt.Fprintf(h, "%s %s\n", key, content) // a hash takes everything
	}
	return map[string]string{"objects": strconv.Itoa(n), "sha256": hex.EncodeToString(h.Sum(nil))}
}
