package push

import (
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// Request is what lies between two contexts: a hint that saves time and feeds metrics and logs.
// Ignoring it never gives a wrong answer.
type Request struct {
	From, To *Context
	// Mesh says that the mesh-wide settings differ.
	Mesh bool
	// Objects, Services and Endpoints are the keys of what differs, sorted.
	Objects   []config.Key
	Services  []registry.Key
	Endpoints []registry.Key
	// Since is when the first of the changes was noticed; zero: unknown.
	Since time.Time
}

// EndpointsOnly says that nothing but endpoints differs.
func (r Request) EndpointsOnly() bool {
	return !r.Mesh && len(r.Objects) == 0 && len(r.Services) == 0
}

// Compare finds what lies between two contexts of one origin; from may be nil. Its cost is that of
// the differences.
func Compare(from, to *Context) Request {
	r := Request{From: from, To: to}
	var old Inputs
	if from != nil {
		old = from.in
	}
	r.Mesh = old.Mesh != to.in.Mesh
	for ch := range to.in.Objects.Diff(old.Objects) {
		r.Objects = append(r.Objects, ch.Key)
	}
	for ch := range to.in.Services.Diff(old.Services) {
		r.Services = append(r.Services, ch.Key)
	}
	for ch := range to.in.Endpoints.Diff(old.Endpoints) {
		r.Endpoints = append(r.Endpoints, ch.Key)
	}
	return r
}
