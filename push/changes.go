package push

import "time"

// Changes counts the differences between two contexts, for the log and for metrics. No decision
// depends on it: a stream compares what its client has with the latest context.
type Changes struct {
	// Mesh means that the mesh-wide settings differ.
	Mesh bool
	// Trust means that roots or revocations differ. Keys means that keys of token issuers differ.
	Trust, Keys bool
	// Objects, Services and Endpoints count the differences. Endpoints counts services.
	Objects, Services, Endpoints int
	// Since is when the first change was noticed; zero: unknown.
	Since time.Time
}

// Compare counts the differences between two contexts, the second built from the first; from may be
// nil. Its cost is that of the differences.
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
