package push

import "time"

// Changes counts the differences between two contexts, for the log and for metrics. No decision
// depends on it: a stream compares the resources of its client with the latest context.
type Changes struct {
	// Mesh means that the mesh-wide settings differ.
	Mesh bool
	// Trust means that roots or revocations differ.
	Trust bool
	// Keys means that keys of token issuers differ.
	Keys bool
	// Objects and Services are the numbers of objects and services that differ.
	Objects, Services int
	// Endpoints is the number of services whose endpoints differ.
	Endpoints int
	// Since is when the first change was noticed. Zero if that is unknown.
	Since time.Time
}

// Compare counts the differences between two contexts. The second was built from the first, which
// may be nil. The cost grows with the number of differences.
func Compare(from, to *Context) Changes {
	var previous Inputs
	if from != nil {
		previous = from.in
	}
	c := Changes{
		Mesh: previous.Mesh != to.in.Mesh, Trust: previous.Trust != to.in.Trust, Keys: previous.Keys != to.in.Keys,
	}
	for range to.in.Objects.Diff(previous.Objects) {
		c.Objects++
	}
	for range to.in.Services.Diff(previous.Services) {
		c.Services++
	}
	for range to.in.Endpoints.Diff(previous.Endpoints) {
		c.Endpoints++
	}
	return c
}
