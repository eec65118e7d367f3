package adminapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/push"
)

// maxWritten is how many objects of one change are recorded one by one.
const maxWritten = 50

// ConfigAudit records which objects became active. The actor is their source: files do not say who
// wrote them, and writes to the store are recorded by Store. A change that was made while ashored
// was down shows as another digest at the start.
type ConfigAudit struct {
	Record func(audit.Event) // set before use

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
		all.Details = digest(objects)
		w.Record(all)
		return
	}
	n := 0
	for c := range objects.Diff(last) {
		if c.HadOld && c.HasNew && c.Old.Hash == c.New.Hash { // it is defined elsewhere now
			continue
		}
		if n++; n <= maxWritten {
			w.Record(change(c.Old, c.New))
		}
	}
	if n > maxWritten {
		all.Reason = fmt.Sprintf("%d more objects were changed at once", n-maxWritten)
		all.Details = digest(objects)
		w.Record(all)
	}
}

// change returns the event of one object; one of the two may be nil.
func change(old, now *config.Object) audit.Event {
	o := cmp.Or(now, old)
	e := audit.Event{Action: audit.ConfigWrite, Actor: o.Origin.Source, Target: o.Key.String(),
		Details: map[string]string{}}
	switch {
	case o.Origin.File != "":
		e.Details["file"] = o.Origin.File + ":" + strconv.Itoa(o.Origin.Line)
	case o.Revision != "":
		e.Details["revision"] = o.Revision
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
		e.Reason = "changed"
	}
	return e
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

// digest returns the number and the SHA-256 of objects, as details of an event.
func digest(objects push.Objects) map[string]string {
	h := sha256.New()
	for key, o := range objects.All() {
		_, _ = fmt.Fprintf(h, "%s %s\n", key, contentHash(o)) // a hash takes everything
	}
	return map[string]string{"objects": strconv.Itoa(objects.Len()), "sha256": hex.EncodeToString(h.Sum(nil))}
}
