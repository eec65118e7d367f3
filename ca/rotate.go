package ca

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// ErrRotate is why a rotation does not begin, or a step is not forced: it is the caller's fault.
var ErrRotate = errors.New("cannot rotate")

// RotateRequest asks for a rotation of the root. A rotation that was begun goes on by itself.
type RotateRequest struct {
	// Actor is who asks, and Reason why, for the audit log: "user root (uid 0)", "the old key was
	// copied".
	Actor, Reason string
	// Force does this step although somebody is waited for, who may be stranded by it; None begins
	// a rotation. It must be the step that comes next, so that asking twice does not force two.
	Force Step
}

// rotate implements authority.
func (s *selfSigned) rotate(ctx context.Context, r RotateRequest, now time.Time) error {
	if err := s.refresh(ctx, now); err != nil {
		return err
	}
	if r.Force == None {
		return s.begin(ctx, r, now)
	}
	facts, err := s.facts(ctx)
	if err != nil {
		return err
	}
	return s.force(ctx, r, facts, now)
}

// begin creates a new root and distributes it to all workloads. The old root still signs.
func (s *selfSigned) begin(ctx context.Context, r RotateRequest, now time.Time) error {
	if s.state.Step != None {
		return fmt.Errorf("%w: a rotation goes on since %s; its next step is %s, which --force %s does at once",
			ErrRotate, s.state.Since.Format(time.RFC3339), s.state.following(), s.state.following())
	}
	active, err := s.state.root(s.state.Active)
	if err != nil {
		return err
	}
	old, err := s.rootKey(active)
	if err != nil {
		return fmt.Errorf("%w: the new root is made where the old one's key is: %w", ErrRotate, err)
	}
	root, err := s.nextRoot(now)
	if err != nil {
		return err
	}
	id := RootID(root.cert)
	to := s.state
	to.Step, to.Since, to.Next = StepDistribute, now.UTC(), id
	to.Roots = maps.Clone(s.state.Roots)
	to.Roots[id] = root.cert.Raw
	if now.Before(active.NotAfter) { // else nobody believes it any more
		cross, err := old.cross(root.cert, now)
		if err != nil {
			return err
		}
		to.Cross = cross.Raw
	}
	return s.commit(ctx, to, r, nil)
}

// nextRoot is one that was made and not recorded, because ashored was killed between the two, or a
// new one.
func (s *selfSigned) nextRoot(now time.Time) (*pair, error) {
	p, err := s.dir.pair(nextRootFile)
	if err == nil && p != nil && now.Before(half(p.cert)) && s.state.Roots[RootID(p.cert)] == nil {
		s.keys[RootID(p.cert)] = p
		return p, nil
	}
	return s.makeRoot(nextRootFile, now) // one that cannot be read was never recorded either
}

// force does a step whatever is waited for.
func (s *selfSigned) force(ctx context.Context, r RotateRequest, f Facts, now time.Time) error {
	switch {
	case s.state.Step == None:
		return fmt.Errorf("%w: no rotation goes on, there is nothing to force", ErrRotate)
	case r.Force != s.state.following():
		return fmt.Errorf("%w: the next step is %s, not %s", ErrRotate, s.state.following(), r.Force)
	case s.behind():
		return fmt.Errorf("%w: this replica does not sign with the new root yet: %s", ErrRotate, s.keyless)
	}
	return s.commit(ctx, s.state.done(now), r, s.waiting(f, now))
}

// behind says that this replica is to sign with the new root and does not.
func (s *selfSigned) behind() bool {
	return s.state.Step == StepActivate && RootID(s.signer.Root) != s.state.Active
}

// waiting is what the next step waits for.
func (s *selfSigned) waiting(f Facts, now time.Time) []Waiting {
	w := s.state.waiting(f, now)
	if s.behind() {
		w = append(w, Waiting{Kind: "control plane", Name: "this replica",
			Reason: "does not sign with the new root yet"})
	}
	return w
}

// advance does the next step when nobody is waited for, and says whether it did one.
func (s *selfSigned) advance(ctx context.Context, f Facts, now time.Time) (bool, error) {
	if s.state.Step == None || len(s.waiting(f, now)) > 0 {
		return false, nil
	}
	err := s.commit(ctx, s.state.done(now), RotateRequest{Actor: "ashored"}, nil)
	if errors.Is(err, record.ErrConflict) { // another replica was faster
		return true, nil
	}
	return err == nil, err
}

// commit records a step that r asks for; waiting are those who are waited for although it is
// forced. What is done stands in the audit log; of what is not, whoever asked for it tells.
func (s *selfSigned) commit(ctx context.Context, to State, r RotateRequest, waiting []Waiting) error {
	step := s.state.following()
	switch err := s.records.write(ctx, to, s.version); {
	case errors.Is(err, record.ErrConflict):
		return fmt.Errorf("the rotation was changed by another replica at this moment, look again: %w", err)
	case err != nil:
		return err
	}
	e := audit.Event{Action: audit.CARotate, Actor: r.Actor, Target: to.Active, Reason: r.Reason,
		Details: map[string]string{"step": string(step)}}
	if to.Next != "" {
		e.Details["next"] = to.Next
	}
	if s.state.Old != "" {
		e.Details["old"] = s.state.Old
	}
	if r.Force != None {
		e.Details["forced"] = strconv.Itoa(len(waiting))
	}
	s.audit(e)
	s.log.Info("rotation of the root", "step", step, "root", to.Active, "next", to.Next, "actor", r.Actor,
		"forced", r.Force != None, "waited for", len(waiting))
	return nil
}
