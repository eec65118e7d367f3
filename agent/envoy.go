package agent

import (
	"cmp"
	"context"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/machine"
)

// PackagedEnvoy is where the package ashore-envoy puts it.
const PackagedEnvoy = "/usr/lib/ashore/envoy"

// Program returns the program that is run, which starts and is supported: PackagedEnvoy for units;
// else Path, "envoy" in PATH, or PackagedEnvoy. The error is a UsageError that says what to do.
func (e *Envoy) Program(ctx context.Context) (string, error) {
	path := e.Path
	switch {
	case e.units:
		path = cmp.Or(e.program, PackagedEnvoy)
	case path == "":
		path = PackagedEnvoy
		if found, err := exec.LookPath("envoy"); err == nil {
			path = found
		}
	}
	path, err := filepath.Abs(path)
	if err == nil {
		err = machine.CheckEnvoy(ctx, path)
	}
	if err != nil {
		return "", &UsageError{"envoy.path", err.Error() + ", or name Envoy's program (--envoy)"}
	}
	return path, nil
}

// envoyRunner keeps one Envoy running: as a child of this process (child) or as systemd units that
// outlive it (units).
type envoyRunner interface {
	// Run starts Envoy, or goes on with one that runs, and starts it again when it ends. It returns
	// when ctx has ended, or when Envoy has ended after last has. A child has ended then; a unit
	// runs on.
	Run(ctx, last context.Context) error
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

const (
	// firstPause is between the first unexpected end of Envoy and its next start; it doubles with
	// each one.
	firstPause = 100 * time.Millisecond
	// longestPause bounds it.
	longestPause = 30 * time.Second
	// steady is how long a run takes that ends a series of failures.
	steady = time.Minute
)

// restarter starts Envoy again whenever it ends before it should, and holds its state.
type restarter struct {
	log   hclog.Logger
	ended chan struct{} // capacity 1

	mu    sync.Mutex
	state envoyState // guarded by mu
}

func newRestarter(log hclog.Logger) restarter {
	return restarter{log: log, ended: make(chan struct{}, 1)}
}

// State implements envoyRunner.
func (r *restarter) State() envoyState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *restarter) change(f func(*envoyState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.state)
}

// Ended implements envoyRunner.
func (r *restarter) Ended() <-chan struct{} { return r.ended }

// repeat calls run until ctx or last has ended. run returns when Envoy has ended, and why.
func (r *restarter) repeat(ctx, last context.Context, run func(context.Context) error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		begun := time.Now()
		err := run(ctx)
		if ctx.Err() != nil || last.Err() != nil {
			return
		}
		lived := time.Since(begun)
		if lived >= steady {
			pause = firstPause
		}
		r.change(func(s *envoyState) { *s = envoyState{Runs: s.Runs, Unit: s.Unit, Trouble: err.Error()} })
		r.log.Error("envoy does not run and is started again", "error", err,
			"lived", lived.Round(time.Millisecond), "next", pause)
		poke(r.ended)
		select {
		case <-ctx.Done():
			return
		case <-last.Done():
			return
		case <-time.After(pause):
		}
	}
}

// poke makes the reader of c look, now or when it is ready.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits. It returns false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
