package webhook

import "encoding/json"

// review is Kubernetes' AdmissionReview, as far as it matters here. It is written out: the library
// would bring Kubernetes' machinery along for four small types that never change. Source:
// k8s.io/api admission/v1,
// https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

// What a review calls itself.
const (
	reviewVersion = "admission.k8s.io/v1"
	reviewKind    = "AdmissionReview"
)

// request is a write that a client asks for. Other fields, such as dryRun, change no answer.
type request struct {
	// UID names it; the answer has to repeat it.
	UID string `json:"uid"`
	// Kind is that of Object; API servers send it always.
	Kind struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
	} `json:"kind"`
	// SubResource is the part of the object that is written, "status"; empty: the object.
	SubResource string `json:"subResource"`
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string `json:"operation"`
	// Object is how it would be then; null when it would not be.
	Object json.RawMessage `json:"object"`
}

// The operations.
const (
	opCreate  = "CREATE"
	opUpdate  = "UPDATE"
	opDelete  = "DELETE"
	opConnect = "CONNECT"
)

// response is the answer.
type response struct {
	UID     string  `json:"uid"`
	Allowed bool    `json:"allowed"`
	Status  *status `json:"status,omitempty"`
	// Warnings are shown to the client, whether the request is allowed or not.
	Warnings []string `json:"warnings,omitempty"`
}

// status says why something is not allowed: Kubernetes' Status.
type status struct {
	Code    int      `json:"code"`
	Reason  string   `json:"reason"`
	Message string   `json:"message"`
	Details *details `json:"details,omitempty"`
}

// details are for programs.
type details struct {
	Name   string  `json:"name,omitempty"`
	Group  string  `json:"group,omitempty"`
	Kind   string  `json:"kind,omitempty"`
	Causes []cause `json:"causes,omitempty"`
}

// cause is one thing that is wrong.
type cause struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"`
}
