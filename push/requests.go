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

// request is something that the loop does between two events. ctx is that of Run.
type request func(ctx context.Context, l *loop)

// send has the loop handle r, and waits until that is done. Errors: ctx's, when the loop is busy or
// not started until then; the loop has ended.
func (a *Assembler) send(ctx context.Context, r request) error {
	done := make(chan struct{})
	handle := func(ctx context.Context, l *loop) {
		defer close(done)
		r(ctx, l)
	}
	select {
	case a.requests <- handle:
		<-done
		return nil
	case <-a.ended:
		return errors.New("assembler: it has ended")
	case <-ctx.Done():
		return fmt.Errorf("assembler: %w", context.Cause(ctx))
	}
}

// Responds returns nil as soon as the loop is idle. Errors: ctx's, when it is not until then.
func (a *Assembler) Responds(ctx context.Context) error {
	return a.send(ctx, func(context.Context, *loop) {})
}

// SetSources replaces the sources. A source that is in the list already goes on. The merger of
// internal/feed says what becomes of the content of others. Errors: those of Sources.Check, and
// then nothing is replaced; ctx's.
func (a *Assembler) SetSources(ctx context.Context, s Sources) error {
	if err := s.Check(); err != nil {
		return err
	}
	return a.send(ctx, func(ctx context.Context, l *loop) { l.setSources(ctx, s) })
}

// AcceptRemovals removes the items that are retained although a source does not supply them any
// more.
// Errors: ctx's.
func (a *Assembler) AcceptRemovals(ctx context.Context, source string) error {
	return a.send(ctx, func(_ context.Context, l *loop) { l.acceptRemovals(source, time.Now()) })
}

// Status describes the sources and the loop.
type Status struct {
	// Sources are those of configuration, then those of services.
	Sources []feed.SourceStatus
	// Waiting lists the required sources that serving waits for.
	Waiting []string
	// Conflicts counts the options of services that sources set differently.
	Conflicts int
	// Builds counts the contexts that were built.
	Builds int
}

// Status describes the sources and the loop. Its cost does not depend on the size of the mesh.
// Errors: ctx's.
func (a *Assembler) Status(ctx context.Context) (Status, error) {
	var s Status
	err := a.send(ctx, func(_ context.Context, l *loop) {
		s = Status{Sources: append(l.objects.Status(), l.services.Status()...), Waiting: l.waiting(), Builds: l.builds}
		for _, problems := range l.conflicts {
			s.Conflicts += len(problems)
		}
	})
	return s, err
}

// Problems lists all that is wrong with what sources supply, in the order of feed.SortProblems.
// Errors: ctx's.
func (a *Assembler) Problems(ctx context.Context) ([]feed.Problem, error) {
	var out []feed.Problem
	err := a.send(ctx, func(_ context.Context, l *loop) {
		out = append(l.objects.Problems(definedAt), l.services.Problems(suppliedAs)...)
		for _, problems := range l.conflicts {
			out = append(out, problems...)
		}
	})
	feed.SortProblems(out)
	return out, err
}

// Supplied returns a service and the parts that it was made of, as of the next context; false:
// there is none. Errors: ctx's.
func (a *Assembler) Supplied(ctx context.Context, k registry.Key) (out registry.Joined, ok bool, err error) {
	err = a.send(ctx, func(_ context.Context, l *loop) {
		joined := l.cfg.Join.Join(l.parts(registry.Host(k.Host)))
		i := slices.IndexFunc(joined, func(j registry.Joined) bool { return j.Service.Key == k })
		if ok = i >= 0; ok {
			out = joined[i]
			out.Instances = l.withVIP(out.Instances)
		}
	})
	return out, ok, err
}

// definedAt is where an object is defined: its file and line, else its source.
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

// suppliedAs is what the source calls a service.
func suppliedAs(in registry.Instances) string { return in.Service.Object }
