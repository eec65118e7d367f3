package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/config"
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
	out := &response{UID: q.UID, Allowed: true}
	switch {
	case q.Operation == opDelete || q.Operation == opConnect: // nothing is written
	case q.SubResource != "": // neither status nor scale is configuration
	case len(q.Object) == 0 || string(q.Object) == "null":
		return answer{}, refusef(http.StatusBadRequest, "request.object is missing, and %s needs one", q.Operation)
	case !ours(q.Kind.Group):
		out.Warnings = []string{fmt.Sprintf("%.200s is none of Ashore's kinds and was not checked: leave it out of the rules of the webhook", q.Kind.Kind)}
	default:
		out.judge(q)
		s.metrics.reviews.WithLabelValues(strconv.FormatBool(out.Allowed)).Inc()
	}
	return jsonAnswer(http.StatusOK, review{APIVersion: reviewVersion, Kind: reviewKind, Response: out})
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
	case q == nil || q.UID == "" || len(q.UID) > maxUID || q.Kind.Kind == "" ||
		!slices.Contains([]string{opCreate, opUpdate, opDelete, opConnect}, q.Operation):
		return nil, refusef(http.StatusBadRequest,
			"the request of the review is not one of an API server: it needs a uid, an operation and the kind of the object")
	}
	return q, nil
}

// ours reports whether a group is one of Istio's.
func ours(group string) bool {
	return slices.ContainsFunc(config.Kinds(), func(k config.KindInfo) bool { return k.Group == group })
}

// judge validates the object of a request.
func (out *response) judge(q *request) {
	problems := config.Parse("request.object.json", q.Object).Problems
	var object struct {
		Metadata struct {
			DeletionTimestamp string `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(q.Object, &object) // what is wrong with it is among the problems
	// A step of a deletion that waits for finalizers is let in, else the object would stay for ever.
	deleting := q.Operation == opUpdate && object.Metadata.DeletionTimestamp != ""
	out.Allowed = deleting || !slices.ContainsFunc(problems, config.Problem.IsError)
	var lines []string
	d := &details{Group: q.Kind.Group, Kind: q.Kind.Kind}
	for _, p := range problems {
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
		out.Status = &status{Code: http.StatusUnprocessableEntity, Reason: "Invalid", Message: strings.Join(lines, "\n"),
			Details: d}
	}
}

// sentence is a problem without its object, which the client knows.
func sentence(p config.Problem) string { return strings.TrimPrefix(p.Field+": "+p.Text, ": ") }
