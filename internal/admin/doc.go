// Package admin is the API by which operators use a running ashored: HTTP with JSON on a unix socket.
//
// calls.go lists every call with the types of its request and response. A call is a POST to
// /v1/NAME. Send sends a call, and Serve answers calls with the handlers of its routes. An error is
// a Refusal in JSON. GET /debug/pprof/ has Go's profiles.
//
// The kernel reports which user is at the other end. Root and the user of ashored are admins, others
// have the role that Roles gives them. A user without the role that a route needs is refused, and
// the audit log records it.
package admin
