package webhook

import "encoding/json"

// review is the part of Kubernetes' AdmissionReview that the package uses. It is defined here
// because k8s.io/api has many dependencies, and these small types never change.
//
// Source: k8s.io/api admission/v1,
// https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

// The apiVersion and kind of a review.
const (
	reviewVersion = "admission.k8s.io/v1"
	reviewKind    = "AdmissionReview"
)

// request is a write that a client requests. Other fields, such as dryRun, do not affect the
// answer.
type request struct {
	// UID identifies the request. The response has the same UID.
	UID string `json:"uid"`
	// Kind is the kind of Object. API servers always send it.
	Kind struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
	} `json:"kind"`
	// SubResource is the part of the object that is written, such as "status"; empty for the whole
	// object.
	SubResource string `json:"subResource"`
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string `json:"operation"`
	// Object is the object after the write; null if the write deletes it.
	Object json.RawMessage `json:"object"`
}

// The values of request.Operation.
const (
	opCreate  = "CREATE"
	opUpdate  = "UPDATE"
	opDelete  = "DELETE"
	opConnect = "CONNECT"
)

// response is the answer to a request.
type response struct {
	UID     string  `json:"uid"`
	Allowed bool    `json:"allowed"`
	Status  *status `json:"status,omitempty"`
	// Warnings are shown to the client, whether the request is allowed or not.
	Warnings []string `json:"warnings,omitempty"`
}

// status is Kubernetes' Status: why a request is not allowed.
type status struct {
	Code    int      `json:"code"`
	Reason  string   `json:"reason"`
	Message string   `json:"message"`
	Details *details `json:"details,omitempty"`
}

// details is the machine-readable part of a status.
type details struct {
	Name   string  `json:"name,omitempty"`
	Group  string  `json:"group,omitempty"`
	Kind   string  `json:"kind,omitempty"`
	Causes []cause `json:"causes,omitempty"`
}

// cause is one error in the object.
type cause struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"`
}
