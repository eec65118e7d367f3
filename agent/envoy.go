package agent

import "context"

// envoyRunner keeps one Envoy running: as a child of this process (supervisor) or as systemd units
// that outlive it (units).
type envoyRunner interface {
	// Run starts Envoy, or goes on with one that runs, and starts it again when it ends. It returns
	// when ctx has ended, or when Envoy has ended after last was closed. A child has ended then; a
	// unit runs on.
	Run(ctx context.Context, last <-chan struct{}) error
	// Resume says whether an Envoy of this workload runs that Run will go on with. It is called
	// once, before Run.
	Resume(ctx context.Context) (bool, error)
	// Stays says whether Envoy is to run on without this process.
	Stays(ctx context.Context) bool
	// Stop ends an Envoy that outlives this process.
	Stop(ctx context.Context) error
	// State says how Envoy is.
	State() envoyState
	// Ended receives when Envoy ended unexpectedly. Its capacity is 1.
	Ended() <-chan struct{}
}

// envoyState is how an Envoy is.
type envoyState struct {
	// PID is its process; zero: none runs.
	PID int
	// Runs counts its starts that this agent has seen.
	Runs int
	// Replacing says that the next Envoy is taking over.
	Replacing bool
	// Trouble is why Envoy does not run; empty otherwise.
	Trouble string
	// Outdated is why Envoy runs with previous settings for good, and Waiting why it does so for
	// now; empty otherwise.
	Outdated, Waiting string
	// Unit is the systemd unit that it runs as; empty: it is a child.
	Unit string
}
