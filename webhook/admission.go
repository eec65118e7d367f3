package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Why a review was answered with no, for metrics: Istio's words where it has some.
const (
	whyInvalid = "invalid_resource"
	whyKind    = "unknown_type" // one of Istio's groups that Ashore does not know
	whyMixed   = "kind_mismatch"
)

// maxUID bounds what is repeated in an answer, in bytes: API servers send 36.
const maxUID = 256

// admission answers a review. Errors: a refusal, of what is no review that could be answered; API
// servers then do as their failurePolicy says.
func (s *Server) admission(_ *http.Request, data []byte) (answer, error) {
	q, err := readReview(data)
	if err != nil {
		return answer{}, err
	}
	v, err := judge(q)
	if err != nil {
		return answer{}, err
	}
	if v.checked {
		s.metrics.review(q, v.why)
	}
	return jsonAnswer(http.StatusOK, review{APIVersion: reviewVersion, Kind: reviewKind, Response: v.response(q)})
}

// readReview reads a review. Errors: a refusal.
func readReview(data []byte) (*request, error) {
	var in review
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, refusef(http.StatusBadRequest,
			"the body is not an AdmissionReview in JSON: %v (text of configuration goes to %s)", err, validatePath)
	}
	q := in.Request
	switch {
	case in.Kind != reviewKind || in.APIVersion != reviewVersion:
		return nil, refusef(http.StatusBadRequest,
			"the body is %.100q of %.100q, want %s of %s: list v1 in admissionReviewVersions (text of configuration goes to %s)",
			in.Kind, in.APIVersion, reviewKind, reviewVersion, validatePath)
	case q == nil:
		return nil, refusef(http.StatusBadRequest, "the review has no request")
	case q.UID == "" || len(q.UID) > maxUID:
		return nil, refusef(http.StatusBadRequest, "request.uid has %d bytes, want 1 to %d", len(q.UID), maxUID)
	case !slices.Contains([]string{opCreate, opUpdate, opDelete, opConnect}, q.Operation):
		return nil, refusef(http.StatusBadRequest, "request.operation is %.100q, want %s, %s or %s", q.Operation,
			opCreate, opUpdate, opDelete)
	case q.Kind.Kind == "":
		return nil, refusef(http.StatusBadRequest,
			"request.kind is missing, or has no kind: it has to name the group, version and kind of the object, as an API server's request does")
	}
	return q, nil
}

// verdict is what is said of a request.
type verdict struct {
	checked  bool             // its object was looked at
	why      string           // it is not allowed; for metrics
	problems []config.Problem // of the object
	note     string           // a further warning
}

// judge says what is wrong with what a request would write. Errors: a refusal.
func judge(q *request) (verdict, error) {
	others := !ours(q.Kind.Group)
	switch {
	case q.Operation == opDelete || q.Operation == opConnect:
		return verdict{}, nil // nothing is written
	case q.SubResource != "":
		return verdict{}, nil // neither status nor scale is configuration
	case len(q.Object) == 0 || string(q.Object) == "null":
		return verdict{}, refusef(http.StatusBadRequest, "request.object is missing, and %s needs one", q.Operation)
	case others && !q.announces(readHead(q.Object)):
		return verdict{checked: true, why: whyMixed, problems: []config.Problem{q.mixed()}}, nil
	case others:
		return verdict{note: fmt.Sprintf("%.200s is none of Ashore's kinds and was not checked: leave it out of the rules of the webhook", q.Kind.Kind)}, nil
	}
	return examine(q), nil
}

// ours says that a group is one of Istio's that configuration is of.
func ours(group string) bool {
	return slices.ContainsFunc(config.Kinds(), func(k config.KindInfo) bool { return k.Group == group })
}

// examine takes an object through the gate.
func examine(q *request) verdict {
	r := config.Parse("request.object.json", q.Object)
	v := verdict{checked: true, problems: r.Problems}
	for i := range v.problems {
		v.problems[i].File, v.problems[i].Line = "", 0 // who asks has written it elsewhere
	}
	kind := config.Kind(q.Kind.Kind)
	_, known := config.Info(kind)
	keys := r.Broken
	for _, o := range r.Objects {
		keys = append(keys, o.Key)
	}
	head := readHead(q.Object)
	wrong := slices.ContainsFunc(v.problems, config.Problem.IsError)
	switch {
	case wrong && q.Operation == opUpdate && head.Metadata.DeletionTimestamp != "" && q.announces(head):
		// A step of a deletion that waits for finalizers: refused, the object would stay for ever.
	case wrong && known:
		v.why = whyInvalid
	case wrong:
		v.why = whyKind
	case !q.announces(head) || len(keys) != 1 || keys[0].Kind != kind:
		v.why = whyMixed
		v.problems = append(v.problems, q.mixed())
	}
	return v
}

// announces says that the kind of the request is that of the object with that head.
func (q *request) announces(h head) bool {
	return h.Kind == q.Kind.Kind && h.group() == q.Kind.Group
}

// mixed is the problem of an object that is not the one which its request announces.
func (q *request) mixed() config.Problem {
	is, h := "has no kind", readHead(q.Object)
	if h.Kind != "" {
		is = "is " + called(h.Kind, h.group())
	}
	return config.Problem{Severity: feed.Error, Field: "kind",
		Text: fmt.Sprintf("the object %s: it is not the one that request.kind announces, which is %s", is,
			called(q.Kind.Kind, q.Kind.Group))}
}

// called is a kind of a group in words, cut to what is worth repeating.
func called(kind, group string) string {
	if group == "" {
		return fmt.Sprintf("%.200s of the core group", kind)
	}
	return fmt.Sprintf("%.200s of %.200s", kind, group)
}

// head is what of an object counts beside what the gate reads.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		DeletionTimestamp string `json:"deletionTimestamp"`
	} `json:"metadata"`
}

// group is that of the kind; empty: the core group, whose API version is "v1" alone.
func (h head) group() string {
	group, _, found := strings.Cut(h.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// readHead reads a head; one that cannot be read is empty, and the gate tells what is wrong with
// it.
func readHead(object []byte) head {
	var h head
	if json.Unmarshal(object, &h) != nil {
		return head{}
	}
	return h
}

// response is the verdict as Kubernetes wants it.
func (v verdict) response(q *request) *response {
	out := &response{UID: q.UID, Allowed: v.why == ""}
	if v.note != "" {
		out.Warnings = append(out.Warnings, v.note)
	}
	var lines []string
	d := &details{Group: q.Kind.Group, Kind: q.Kind.Kind}
	for _, p := range v.problems {
		line := sentence(p)
		if out.Allowed || !p.IsError() {
			out.Warnings = append(out.Warnings, line)
			continue
		}
		lines = append(lines, line)
		d.Causes = append(d.Causes, cause{Reason: "FieldValueInvalid", Message: p.Text, Field: p.Field})
		if d.Name == "" {
			_, d.Name, _ = strings.Cut(p.Object, "/")
		}
	}
	if !out.Allowed {
		out.Status = &status{Code: http.StatusUnprocessableEntity, Reason: "Invalid",
			Message: strings.Join(lines, "\n"), Details: d}
	}
	return out
}

// sentence is a problem without its object, which who asks knows.
func sentence(p config.Problem) string {
	if p.Field == "" {
		return p.Text
	}
	return p.Field + ": " + p.Text
}
