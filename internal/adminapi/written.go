package adminapi

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/push"
)

// maxWritten is how many objects of one change are recorded one by one.
const maxWritten = 50

// ConfigAudit records which objects became active or were removed. The actor is their source: files
// do not say who wrote them, and writes to the store are recorded on their own.
type ConfigAudit struct {
	Record func(audit.Event) // set before use

	// last are the objects of the last context; nil before the first. It is owned by the goroutine
	// that publishes.
	last *push.Objects
}

// Published records what changed since the last context.
func (w *ConfigAudit) Published(objects push.Objects) {
	last := cmp.Or(w.last, &objects)
	w.last = &objects
	n := 0
	for c := range objects.Diff(*last) {
		if c.HadOld && c.HasNew && c.Old.Hash == c.New.Hash { // it is defined elsewhere now
			continue
		}
		if n++; n <= maxWritten {
			w.Record(change(c.Old, c.New))
		}
	}
	if n > maxWritten {
		w.Record(audit.Event{Action: audit.ConfigWrite, Actor: "ashored", Target: "everything",
			Reason: fmt.Sprintf("%d more objects were changed at once", n-maxWritten)})
	}
}

// change returns the event of one object; one of the two may be nil.
func change(old, now *config.Object) audit.Event {
	o := cmp.Or(now, old)
	e := audit.Event{Action: audit.ConfigWrite, Actor: o.Origin.Source, Target: o.Key.String(),
		Reason: actionOf(old, now), Details: map[string]string{}}
	switch {
	case o.Origin.File != "":
		e.Details["file"] = o.Origin.File + ":" + strconv.Itoa(o.Origin.Line)
	case o.Revision != "":
		e.Details["revision"] = o.Revision
	}
	if old != nil {
		e.Details["before"] = fmt.Sprintf("%016x", old.Hash)
	}
	if now != nil {
		e.Details["hash"] = fmt.Sprintf("%016x", now.Hash)
	}
	return e
}
