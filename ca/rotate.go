package ca

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// ErrRotate is why a rotation does not begin, or a step is not forced: it is the caller's fault.
var ErrRotate = errors.New("cannot rotate")

// RotateRequest asks for a rotation of the root. A rotation that has begun continues by itself.
type RotateRequest struct {
	// Actor is who asks, and Reason why, for the audit log: "user root (uid 0)", "the old key was
	// copied".
	Actor, Reason string
	// Force takes this step although workloads that it waits for may have to join again; None begins a
	// rotation. It must be the next step, so that asking twice does not force two.
	Force string
}

// rotate implements authority.
func (s *selfSigned) rotate(ctx context.Context, r RotateRequest, now time.Time) error {
	if err := s.refresh(ctx, now); err != nil {
		return err
	}
	next := s.state.following()
	switch {
	case r.Force == None && s.state.Step == None:
		return s.begin(ctx, r, now)
	case s.state.Step == None:
		return fmt.Errorf("%w: no rotation goes on, there is nothing to force", ErrRotate)
	case r.Force != next:
		return fmt.Errorf("%w: a rotation goes on since %s; its next step is %s, which --force %s takes at once",
			ErrRotate, s.state.Since.Format(time.RFC3339), next, next)
	case s.late():
		return fmt.Errorf("%w: this replica does not sign with the new root yet: %s", ErrRotate, s.overdue)
	}
	facts, err := s.config.Facts(ctx)
	if err != nil {
		return err
	}
	return s.commit(ctx, s.state.done(now), r, len(s.waiting(facts, now)))
}

// begin makes a new root and distributes it to all workloads. The old root still signs.
func (s *selfSigned) begin(ctx context.Context, r RotateRequest, now time.Time) error {
	old, err := s.activeKey()
	if err != nil {
		return fmt.Errorf("%w: the new root is made where the old one's key is: %w", ErrRotate, err)
	}
	root, err := s.makeRoot(now)
	if err == nil {
		err = s.dir.writePair(nextRootFile, root)
	}
	if err != nil {
		return err
	}
	id := RootID(root.cert)
	to := s.state
	to.Step, to.Since, to.Other = StepDistribute, now.UTC(), id
	to.Roots = maps.Clone(s.state.Roots)
	to.Roots[id] = root.cert.Raw
	cross, err := old.cross(root.cert, now)
	if err != nil {
		return err
	}
	to.Cross = cross.Raw
	return s.commit(ctx, to, r, 0)
}

// late reports whether this replica has to sign with the new root and does not yet.
func (s *selfSigned) late() bool {
	return s.state.Step == StepActivate && s.signer.root != s.state.Active
}

// waiting is what the next step waits for.
func (s *selfSigned) waiting(f Facts, now time.Time) []admin.Waiting {
	w := s.state.waiting(f, now)
	if s.late() {
		w = append(w, admin.Waiting{Kind: "control plane", Name: "this replica",
			Reason: "does not sign with the new root yet"})
	}
	return w
}

// advance takes the next step if it waits for nothing, and reports whether the state has changed.
func (s *selfSigned) advance(ctx context.Context, f Facts, now time.Time) (bool, error) {
	if len(s.waiting(f, now)) > 0 {
		return false, nil
	}
	err := s.commit(ctx, s.state.done(now), RotateRequest{Actor: "ashored"}, 0)
	if errors.Is(err, record.ErrConflict) { // another replica was faster
		return true, nil
	}
	return err == nil, err
}

// commit records a step and writes it to the audit log. waiting is how many a forced step waited for.
func (s *selfSigned) commit(ctx context.Context, to State, r RotateRequest, waiting int) error {
	err := s.states.commit(ctx, stateName, to, s.version)
	if errors.Is(err, record.ErrConflict) {
		return fmt.Errorf("the rotation was changed by another replica at this moment, look again: %w", err)
	}
	if err != nil {
		return err
	}
	step := s.state.following()
	e := audit.Event{Action: audit.CARotate, Actor: r.Actor, Target: to.Active, Reason: r.Reason,
		Details: map[string]string{"step": step, "other": cmp.Or(to.Other, s.state.Other)}}
	if r.Force != None {
		e.Details["forced"] = strconv.Itoa(waiting)
	}
	s.config.Audit(e)
	s.config.Log.Info("rotation of the root", "step", step, "root", to.Active, "other", to.Other, "actor", r.Actor,
		"forced", r.Force != None, "waited for", waiting)
	return nil
}
