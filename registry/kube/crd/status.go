package crd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/excerpt"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry/kube"
)

const (
	// conditionType is the condition that we write, and fieldManager who we are.
	// Source: istio.io/api meta/v1alpha1 IstioCondition.
	conditionType, fieldManager = "Reconciled", "ashore"
	// statusGap is how often objects are compared with their status, and writesPerGap how many are
	// written each time.
	statusGap, writesPerGap = time.Second, 10
	// refusedGap is how long a kind is left alone whose status we may not write.
	refusedGap = 5 * time.Minute
	// maxMessage is the length of the message of a condition, in bytes.
	maxMessage = 2000
)

// StatusConfig configures a StatusWriter. All fields are required.
type StatusConfig struct {
	// Source reads the objects.
	Source *Source
	// Active returns the object with a key that proxies use, from whatever source; nil if there is
	// none.
	Active func(config.Key) *config.Object
	// Problems returns the problems of all sources.
	Problems func() []feed.Problem
}

// StatusWriter writes into the status of each object whether it is in use. It owns the condition
// Reconciled, and leaves the rest of the status as it is.
type StatusWriter struct {
	cfg     StatusConfig
	cluster *kube.Cluster

	failures kube.Failures

	// The rest belongs to Run.

	written map[config.Key]condition  // what was written last
	refused map[config.Kind]time.Time // when we were not allowed to write the status of a kind
}

// NewStatusWriter returns a writer. Call its Run.
func NewStatusWriter(cfg StatusConfig) *StatusWriter {
	return &StatusWriter{cfg: cfg, cluster: cfg.Source.cluster}
}

// Problems returns why statuses cannot be written. A replica that does not lead has none.
func (w *StatusWriter) Problems() []feed.Problem {
	return w.failures.Problems(w.cfg.Source.Name(), "; objects do not show whether they are active")
}

// reset forgets what was written: another replica may have written since.
func (w *StatusWriter) reset() {
	w.written, w.refused = map[config.Key]condition{}, map[config.Kind]time.Time{}
	w.failures.Clear()
}

// Run writes until ctx ends. Only one replica may run it at a time; see kube.Cluster.Lead.
func (w *StatusWriter) Run(ctx context.Context) {
	w.reset()
	defer w.failures.Clear()
	tick := time.NewTicker(statusGap)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.writeSome(ctx)
		}
	}
}

// condition is the condition Reconciled of an object.
type condition struct {
	status, reason, message string
	generation              int64
}

// writeSome writes up to writesPerGap conditions that differ from what the object has. A condition
// that another writer changed afterwards is left alone, so that two writers do not overwrite each
// other all the time.
func (w *StatusWriter) writeSome(ctx context.Context) {
	objects := w.cfg.Source.all()
	for key := range w.written {
		if objects[key] == nil {
			delete(w.written, key)
		}
	}
	found := map[config.Key][]feed.Problem{}
	for _, p := range w.cfg.Problems() {
		if p.Source == w.cfg.Source.Name() {
			key := config.ParseKey(p.Object)
			found[key] = append(found[key], p)
		}
	}
	left := writesPerGap
	for key, o := range objects {
		want, known := w.judge(o, w.cfg.Active(key), found[key])
		if !known || want == w.written[key] || time.Since(w.refused[key.Kind]) < refusedGap {
			continue
		}
		if want == conditionOf(o) {
			w.written[key] = want
			continue
		}
		if left--; left < 0 || !w.write(ctx, o, want) {
			return
		}
	}
}

// judge returns the condition of an object. It is not known until a change is active. found are the
// problems of the object that sources report.
func (w *StatusWriter) judge(o *object, active *config.Object, found []feed.Problem) (condition, bool) {
	c := condition{status: "True", reason: "Active", generation: o.generation}
	ours := active != nil && active.Origin.Source == w.cfg.Source.Name()
	switch {
	case o.hash == 0:
		c.status, c.reason, found = "False", "Invalid", o.problems
	case active == nil, ours && active.Hash != o.hash:
		return c, false
	case !ours:
		c.status, c.reason = "False", "Overridden"
	}
	if len(found) == 0 { // nearly all objects, every second
		return c, true
	}
	var lines []string
	for _, p := range slices.SortedFunc(slices.Values(found), errorsFirst) {
		lines = append(lines, strings.TrimPrefix(p.Field+": "+p.Text, ": "))
	}
	if o.hash == 0 && ours {
		lines = append(lines, fmt.Sprintf("generation %s stays active", active.Revision))
	}
	c.message = excerpt.Of(strings.Join(lines, "\n"), maxMessage)
	return c, true
}

func errorsFirst(a, b feed.Problem) int {
	return cmp.Or(cmp.Compare(a.Severity, b.Severity), a.Compare(b)) // "error" is before "warning"
}

// isOurs returns an entry of status.conditions if it is our condition.
func isOurs(entry any) (map[string]any, bool) {
	m, ok := entry.(map[string]any)
	return m, ok && m["type"] == conditionType
}

// conditionOf returns the condition that an object has; the zero value if it has none.
func conditionOf(o *object) (c condition) {
	for _, entry := range o.conditions {
		m, ours := isOurs(entry)
		if !ours {
			continue
		}
		text := func(name string) string { s, _ := m[name].(string); return s }
		c = condition{status: text("status"), reason: text("reason"), message: text("message")}
		c.generation, _ = m["observedGeneration"].(int64)
	}
	return c
}

// withCondition returns the conditions of an object with ours replaced.
func withCondition(o *object, c condition, now time.Time) []any {
	since := now.UTC().Format(time.RFC3339)
	var out []any
	for _, entry := range o.conditions {
		m, ours := isOurs(entry)
		if !ours {
			out = append(out, entry)
			continue
		}
		if before, ok := m["lastTransitionTime"].(string); ok && m["status"] == c.status {
			since = before
		}
	}
	entry := map[string]any{"type": conditionType, "status": c.status, "reason": c.reason,
		"observedGeneration": c.generation, "lastTransitionTime": since}
	if c.message != "" {
		entry["message"] = c.message
	}
	return append(out, entry)
}

// write writes a condition. It returns false if more writes are no use now.
//
// The conditions of Istio's objects are an atomic list for server-side apply, which would remove
// those of others. So this replaces the list that was read, and only if nobody changed it since.
func (w *StatusWriter) write(ctx context.Context, o *object, c condition) bool {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": o.version},
		"status":   map[string]any{"conditions": withCondition(o, c, time.Now())},
	})
	if err == nil {
		_, err = w.cluster.Dynamic.Resource(o.resource).Namespace(o.key.Namespace).Patch(ctx, o.key.Name,
			types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	}
	collection := o.resource.Resource + "." + o.resource.Group
	topic := "status of " + collection
	switch {
	case err == nil, apierrors.IsNotFound(err): // deleted, or the CRD has no status
		w.written[o.key] = c
		w.failures.Note(topic, nil)
	case apierrors.IsConflict(err): // the watch delivers the next version
	case apierrors.IsForbidden(err):
		w.refused[o.key.Kind] = time.Now()
		w.failures.Note(topic, w.cluster.Explain(err, "patch", collection+"/status"))
	default:
		w.failures.Note(topic, w.cluster.Explain(err, "patch", collection+"/status"))
		return ctx.Err() == nil && apierrors.IsInvalid(err)
	}
	return true
}
