package ca

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
)

// mayJoin says why a token does not make a workload of a name, before anything is used up by it; fresh: it was not used
// yet. tryEnter decides. Errors: *Refusal, or why it cannot be told now.
func (l *Ledger) mayJoin(ctx context.Context, c issued, fresh bool) error {
	if err := l.refuseRevoked(ctx, c); err != nil {
		return err
	}
	w, version, err := l.workload(ctx, c.workload)
	if err != nil {
		return err
	}
	if err := l.mayReplace(w, version != "", c); err != nil {
		return err
	}
	if fresh && w.Key != c.key.String() {
		_, err = l.claimKey(ctx, c.workload, c.key.String())
	}
	return err
}

// mayReplace says why a new proof does not replace what is known of a workload. Within a group the newest operator's word
// wins, and a repeated one is not the newest; a token of another group is no word about this workload at all. Errors: *Refusal.
func (l *Ledger) mayReplace(w Workload, known bool, c issued) error {
	p := c.proof
	switch {
	case !known || p.How != tokenAttestor:
		return nil
	case w.Group != p.Group && w.mayReturn(c.now, l.grace):
		return &Refusal{Code: codes.PermissionDenied, Reason: "name of another group", Final: true,
			Public: "a workload of this name has joined another group: choose another name, or revoke the certificates of that one by their serial numbers first",
			Err:    fmt.Errorf("workload %s joined group %q, and a token of group %q comes for it", c.workload, w.Group, p.Group)}
	case !p.repeats.IsZero() && !w.holds(c.key) && !w.Joined.Before(p.repeats):
		return refuseToken("token used", fmt.Errorf("%s was used at %s, and workload %s has joined anew or renewed since", p.Caller, p.repeats.Format(time.RFC3339), c.workload))
	}
	return nil
}

// mayReturn says that a workload has a certificate to come back with.
func (w *Workload) mayReturn(now time.Time, grace time.Duration) bool {
	for _, leaf := range w.Leaves {
		if !leaf.Revoked && leaf.NotAfter.Add(grace).After(now) {
			return true
		}
	}
	return false
}
