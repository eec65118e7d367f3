package envoy

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/task"
)

// Runner keeps one Envoy running: as a child of this process (Child) or as systemd units that
// outlive it (Units).
type Runner interface {
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
	State() State
	// Ended receives when Envoy ended unexpectedly. Its capacity is 1.
	Ended() <-chan struct{}
}

// State is how an Envoy is.
type State struct {
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

// Options are what every Envoy is started with.
type Options struct {
	// Concurrency is the number of worker threads.
	Concurrency int
	// DrainTime is how long connections of a listener that was changed or removed may go on.
	DrainTime time.Duration
}

func (o Options) arguments() []string {
	return []string{
		"--concurrency", strconv.Itoa(o.Concurrency),
		"--drain-time-s", seconds(o.DrainTime),
		// Every connection is asked to close with its next response; "gradual" would reach few
		// within a short drain.
		"--drain-strategy", "immediate",
		// The admin interface changes it without a restart.
		"--log-level", "warning",
	}
}

// seconds is a duration in whole seconds, rounded up.
func seconds(d time.Duration) string { return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10) }

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
	state State // guarded by mu
}

func newRestarter(log hclog.Logger) restarter {
	return restarter{log: log, ended: make(chan struct{}, 1)}
}

// State implements Runner.
func (r *restarter) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *restarter) change(f func(*State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.state)
}

// Ended implements Runner.
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
		r.change(func(s *State) { *s = State{Runs: s.Runs, Unit: s.Unit, Trouble: err.Error()} })
		r.log.Error("envoy does not run and is started again", "error", err,
			"lived", lived.Round(time.Millisecond), "next", pause)
		task.Poke(r.ended)
		select {
		case <-ctx.Done():
			return
		case <-last.Done():
			return
		case <-time.After(pause):
		}
	}
}
