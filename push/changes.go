package push

import "time"

// Changes counts the differences between two contexts, for the log and for metrics. It does not
// affect what is sent to clients.
type Changes struct {
	// Mesh is true if the mesh-wide settings differ.
	Mesh bool
	// Trust is true if roots or revocations differ.
	Trust bool
	// Keys is true if keys of token issuers differ.
	Keys bool
	// Secrets is true if secrets that credentialName names differ.
	Secrets bool
	// Objects and Services are the numbers of objects and services that differ.
	Objects, Services int
	// Endpoints is the number of services whose endpoints differ.
	Endpoints int
	// Since is when the first change was received. The assembler sets it. Zero means unknown.
	Since time.Time
}

// Compare counts the differences between two contexts. The first may be nil. If the second was built
// from the first, the cost is proportional to the number of differences.
func Compare(from, to *Context) Changes {
	var old Inputs
	if from != nil {
		old = from.in
	}
	c := Changes{
		Mesh: old.Mesh != to.in.Mesh, Trust: old.Trust != to.in.Trust, Keys: old.Keys != to.in.Keys,
		Secrets: old.Secrets != to.in.Secrets,
	}
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
