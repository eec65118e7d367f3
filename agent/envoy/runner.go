package envoy

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Runner keeps one Envoy running, as a child of this process (Child) or as systemd units that
// outlive it (Units).
type Runner interface {
	// Run starts Envoy, or continues with one that runs, and starts it again when it ends. Once
	// last has ended it does not start it again. Run returns when ctx ends, a child also when Envoy
	// ends after last. Then a child has ended; a unit continues to run.
	Run(ctx, last context.Context) error
	// Resume reports whether Run will continue with an Envoy that runs. It is called before Run.
	Resume(ctx context.Context) (bool, error)
	// Stays reports whether Envoy continues to run after this process ends.
	Stays(ctx context.Context) bool
	// Stop ends an Envoy that would outlive this process.
	Stop(ctx context.Context) error
	// State returns the current state.
	State() State
}

// State is the state of an Envoy.
type State struct {
	// PID is its process; zero: it does not run.
	PID int
	// Runs counts the starts that this process has seen.
	Runs int
	// Replacing says that a successor is taking over.
	Replacing bool
	// Problem is why Envoy does not run; empty otherwise.
	Problem string
	// Outdated is why Envoy keeps its previous settings. Waiting is why it has them until its
	// successor starts. Empty otherwise.
	Outdated, Waiting string
	// Unit is its systemd unit; empty: it is a child.
	Unit string
}

// Options are what every Envoy is started with.
type Options struct {
	// Concurrency is the number of worker threads.
	Concurrency int
	// DrainTime is how long connections of a listener that was changed or removed may stay open.
	DrainTime time.Duration
	// Service is the name of the workload's service in spans, "web.shop".
	Service string
	// Variables are environment variables, "NAME=value", without line ends.
	Variables []string
}

// resourceVariable is the environment variable that describes Envoy in spans and logs.
// Source: OpenTelemetry, "Environment Variable Specification".
const resourceVariable = "OTEL_RESOURCE_ATTRIBUTES"

// resource is the value of resourceVariable.
func (o Options) resource() string { return "service.name=" + o.Service }

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
	// firstPause is the pause after the first unexpected end of Envoy. It doubles each time, up to
	// longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	// steady is how long a run lasts that resets the pause.
	steady = time.Minute
)

// restarter starts Envoy again when it ends unexpectedly, and holds its state.
type restarter struct {
	log hclog.Logger

	mu    sync.Mutex
	state State // guarded by mu
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

// repeat calls run until ctx or last has ended. run returns the reason when Envoy has ended.
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
		r.change(func(s *State) { *s = State{Runs: s.Runs, Unit: s.Unit, Problem: err.Error()} })
		r.log.Error("envoy does not run and is started again", "error", err,
			"lived", lived.Round(time.Millisecond), "next", pause)
		select {
		case <-ctx.Done():
			return
		case <-last.Done():
			return
		case <-time.After(pause):
		}
	}
}
