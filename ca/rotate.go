package ca

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// The steps of a rotation of the root in the audit log: begin makes a new root, which signs at once,
// and retire ends the trust in the old one.
const stepBegin, stepRetire = "begin", "retire"

// ErrRotate is why a rotation does not begin, or its end is not forced: it is the caller's fault.
var ErrRotate = errors.New("cannot rotate")

// RotateRequest asks for a rotation of the root. Once begun, a rotation ends automatically.
type RotateRequest struct {
	// Actor is who asks, and Reason why, for the audit log: "user root (uid 0)", "the old key was
	// copied".
	Actor, Reason string
	// Force retires the old root at once, although workloads that it waits for may have to join
	// again. False begins a rotation.
	Force bool
}

// step is what is asked for.
func (r RotateRequest) step() string {
	if r.Force {
		return stepRetire
	}
	return stepBegin
}

// rotate implements authority.
func (s *selfSigned) rotate(ctx context.Context, r RotateRequest, now time.Time) error {
	if err := s.refresh(ctx, now); err != nil {
		return err
	}
	switch {
	case !r.Force && !s.state.rotating():
		return s.begin(ctx, r, now)
	case !s.state.rotating():
		return fmt.Errorf("%w: no rotation is in progress, there is nothing to force", ErrRotate)
	case !r.Force:
		return fmt.Errorf("%w: a rotation is in progress since %s; --force retires the old root at once", ErrRotate,
			s.state.Since.Format(time.RFC3339))
	case s.late():
		return fmt.Errorf("%w: this replica does not sign with the new root yet: %s", ErrRotate, s.overdue)
	}
	dependents, err := s.config.Dependents(ctx)
	if err != nil {
		return err
	}
	return s.commit(ctx, s.state.retired(now), r, len(s.waiting(dependents, now)))
}

// begin makes a new root, which signs from now on. The old root certifies it, so that machines that
// only know the old one accept what the new one signs.
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
	cross, err := old.cross(root.cert, now)
	if err != nil {
		return err
	}
	was, id := s.state.Active, RootID(root.cert)
	return s.commit(ctx, State{Since: now.UTC(), Active: id, Old: was, Cross: cross.Raw,
		Roots: map[string][]byte{was: s.state.Roots[was], id: root.cert.Raw}}, r, 0)
}

// late reports whether this replica has to sign with the new root and does not yet.
func (s *selfSigned) late() bool { return s.state.rotating() && s.signer.root != s.state.Active }

// waiting is what the end of the rotation waits for.
func (s *selfSigned) waiting(all []Dependent, now time.Time) []admin.Waiting {
	w := s.state.waiting(all, now)
	if s.late() {
		w = append(w, admin.Waiting{Kind: "control plane", Name: "this replica",
			Reason: "does not sign with the new root yet"})
	}
	return w
}

// commit records a state and writes it to the audit log. waiting is how many a forced step waited
// for.
func (s *selfSigned) commit(ctx context.Context, to State, r RotateRequest, waiting int) error {
	err := s.states.commit(ctx, stateName, to, s.version)
	if errors.Is(err, record.ErrConflict) {
		return fmt.Errorf("the rotation was changed by another replica at this moment, look again: %w", err)
	}
	if err != nil {
		return err
	}
	step, old := stepBegin, cmp.Or(to.Old, s.state.Old)
	if !to.rotating() {
		step = stepRetire
	}
	e := audit.Event{Action: audit.CARotate, Actor: r.Actor, Target: to.Active, Reason: r.Reason,
		Details: map[string]string{"step": step, "old": old}}
	if r.Force {
		e.Details["forced"] = strconv.Itoa(waiting)
	}
	s.config.Audit(e)
	s.config.Log.Info("rotation of the root", "step", step, "root", to.Active, "old", old, "actor", r.Actor,
		"forced", r.Force, "waited for", waiting)
	return nil
}
