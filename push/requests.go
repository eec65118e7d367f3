package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// request is a function that the loop runs between two events.
type request func(l *loop)

// send runs r on the loop and waits for it. It returns an error if the loop has ended, or if ctx is
// done before r starts.
func (a *Assembler) send(ctx context.Context, r request) error {
	done := make(chan struct{})
	handle := func(l *loop) {
		defer close(done)
		r(l)
	}
	select {
	case a.requests <- handle:
		<-done
		return nil
	case <-a.ended:
		return errors.New("assembler: stopped")
	case <-ctx.Done():
		return fmt.Errorf("assembler: %w", context.Cause(ctx))
	}
}

// Responds returns nil when the loop is idle. It returns an error if ctx is done first.
func (a *Assembler) Responds(ctx context.Context) error {
	return a.send(ctx, func(*loop) {})
}

// AcceptRemovals removes the retained items that a source no longer supplies, and returns their
// number. It returns an error if ctx is done first.
func (a *Assembler) AcceptRemovals(ctx context.Context, source string) (removed int, err error) {
	err = a.send(ctx, func(l *loop) { removed = l.acceptRemovals(source, time.Now()) })
	return removed, err
}

// Status describes the sources and the loop.
type Status struct {
	// Sources lists the configuration sources, then the service sources.
	Sources []feed.SourceStatus
	// Waiting lists the required sources that have not delivered yet. Serving starts when it is
	// empty.
	Waiting []string
	// Conflicts is the number of service options that two sources set to different values.
	Conflicts int
	// Builds is the number of push.Context values built so far.
	Builds int
}

// Status returns the status of the sources and the loop. It returns an error if ctx is done first.
func (a *Assembler) Status(ctx context.Context) (Status, error) {
	var s Status
	err := a.send(ctx, func(l *loop) {
		s = Status{Sources: append(l.objects.Status(), l.services.Status()...), Waiting: l.waiting(), Builds: l.builds}
		for _, problems := range l.conflicts {
			s.Conflicts += len(problems)
		}
	})
	return s, err
}

// Problems lists the problems of all sources, sorted by feed.SortProblems. It returns an error if
// ctx is done first.
func (a *Assembler) Problems(ctx context.Context) ([]feed.Problem, error) {
	var out []feed.Problem
	err := a.send(ctx, func(l *loop) {
		out = append(l.objects.Problems(definedAt), l.services.Problems(suppliedAs)...)
		for _, problems := range l.conflicts {
			out = append(out, problems...)
		}
	})
	feed.SortProblems(out)
	return out, err
}

// Supplied returns a service and the parts merged into it, as the next push.Context will have them.
// ok is false if there is no such service. It returns an error if ctx is done first.
func (a *Assembler) Supplied(ctx context.Context, k registry.Key) (out registry.Joined, ok bool, err error) {
	err = a.send(ctx, func(l *loop) {
		joined := l.cfg.Join.Join(l.parts(registry.Host(k.Host)))
		i := slices.IndexFunc(joined, func(j registry.Joined) bool { return j.Service.Key == k })
		if ok = i >= 0; ok {
			out = joined[i]
			out.Instances = l.withVIP(out.Instances)
		}
	})
	return out, ok, err
}

// definedAt returns where an object is defined: its file and line, or else its source.
func definedAt(o *config.Object) string {
	switch {
	case o.Origin.File == "":
		return o.Origin.Source
	case o.Origin.Line == 0:
		return o.Origin.File
	default:
		return fmt.Sprintf("%s:%d", o.Origin.File, o.Origin.Line)
	}
}

// suppliedAs returns the name of a service in its source.
func suppliedAs(in registry.Instances) string { return in.Service.Object }
