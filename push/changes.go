package push

import "time"

// Changes says how much lies between two contexts, and since when: for the log and for measuring how long a
// change takes to arrive. Nobody decides anything by it: a stream compares what its client has with what the
// latest context says, and equal pointers make that cheap.
type Changes struct {
	// Mesh says that the mesh-wide settings differ.
	Mesh bool
	// Trust says that roots or revocations differ, Keys that keys of issuers of tokens do.
	Trust, Keys bool
	// Objects, Services and Endpoints count what differs; Endpoints counts services.
	Objects, Services, Endpoints int
	// Since is when the first of the changes was noticed; zero: unknown.
	Since time.Time
}

// Compare counts what lies between two contexts of one origin; from may be nil. Its cost is that of
// the differences.
func Compare(from, to *Context) Changes {
	var old Inputs
	if from != nil {
		old = from.in
	}
	c := Changes{Mesh: old.Mesh != to.in.Mesh, Trust: old.Trust != to.in.Trust, Keys: old.Keys != to.in.Keys}
	for range to.in.Objects.Diff(old.Objects) {
		c.Objects++
	}
	for range to.in.Services.Diff(old.Services) {
		c.Services++
	}
	for range to.in.Endpoints.Diff(old.Endpoints) {
		c.Endpoints++
	}
	return c
}
