package ca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Presence is where a workload is.
type Presence struct {
	// Address is that of its machine.
	Address string
	// Since is when its proxy connected, or when that went.
	Since time.Time
	// Connected says that it is connected; else it was, and counts until its lease ends.
	Connected bool
}

// claimTime is how long a name is that of who joined by it, whether or not his proxy is connected
// yet: of two machines that join under one name at the same moment one does.
const claimTime = 15 * time.Second

// claimTable is where stands who joined under a name, by workload.
const claimTable = "joining"

// nameClaim is who joined under a name.
type nameClaim struct {
	Format int       `json:"v"`
	Key    string    `json:"key"`
	From   string    `json:"from"`
	At     time.Time `json:"at"`
}

func (c *nameClaim) format() int { return c.Format }

// claimOf is the write that makes a name that of who joins; version is the one that the claim
// before was read at.
func claimOf(c issued, version string) (record.Write, error) {
	value, err := json.Marshal(nameClaim{1, c.key.String(), c.proof.from.String(), c.now})
	return record.Write{Key: record.Key{Table: claimTable, Name: c.workload}, Value: value, Version: version}, err
}

// mayJoin says why a token does not make a workload of a name, before anything is used up by it;
// fresh: it was not used yet. It returns the version of the claim to the name: whoever joins
// meanwhile changes that. Errors: *Refusal, or why it cannot be told now.
func (l *Ledger) mayJoin(ctx context.Context, c issued, fresh bool) (claimed string, err error) {
	if err := l.refuseRevoked(ctx, c); err != nil {
		return "", err
	}
	// The claim is read before the workload: who made it before wrote the workload after.
	made, claimed, err := l.claim(ctx, c.workload)
	if err != nil {
		return "", err
	}
	w, version, err := l.workload(ctx, c.workload)
	if err != nil {
		return "", err
	}
	if err := l.mayReplace(w, version != "", c); err != nil {
		return "", err
	}
	if fresh && !c.mayTake(w) {
		if err := l.refuseTaken(w, made, c); err != nil {
			return "", err
		}
	}
	if fresh && w.Key != c.key.String() {
		_, err = l.claimKey(ctx, c.workload, c.key.String())
	}
	return claimed, err
}

// claim reads who joined under a name last; version is empty when nobody did lately.
func (l *Ledger) claim(ctx context.Context, workload string) (c nameClaim, version string, err error) {
	r, err := l.records.Get(ctx, record.Key{Table: claimTable, Name: workload})
	if err != nil || r.Version == "" {
		return c, "", err
	}
	if err := decodeRecord(r.Value, &c); err != nil {
		return c, "", fmt.Errorf("who joined as %s: %w", workload, err)
	}
	return c, r.Version, nil
}

// mayTake says that it does not matter whether a workload is alive: the caller is it, as he has its
// key, or means to take its place.
func (c *issued) mayTake(w Workload) bool {
	p := c.proof
	return p.replaces || w.holds(c.key) || p.shown != nil && w.holds(*p.shown)
}

// refuseTaken refuses the name of a workload that is alive, with a certificate that is valid, or
// under which another machine has joined a moment ago.
func (l *Ledger) refuseTaken(w Workload, made nameClaim, c issued) error {
	where := ""
	p, present := Presence{}, false
	if w.valid(c.now) {
		p, present = l.present(w)
	}
	at := p.Since.UTC().Format(time.RFC3339)
	switch age := c.now.Sub(made.At); {
	case present && p.Connected:
		where = fmt.Sprintf("a machine of this name is connected from %s since %s", p.Address, at)
	case present:
		where = fmt.Sprintf("a machine of this name was connected from %s until %s and may come back", p.Address, at)
	case made.Key == "" || made.Key == c.key.String() || !w.Joined.Before(made.At) && !w.valid(c.now): // nobody's, his own, or put out since
		return nil
	case age.Abs() < claimTime:
		where = fmt.Sprintf("a machine joined under this name from %s at %s", made.From,
			made.At.UTC().Format(time.RFC3339))
	default:
		return nil
	}
	return &Refusal{Code: codes.AlreadyExists, Reason: "name in use", Final: true,
		Public: fmt.Sprintf("the name %s is in use: %s; give this machine another name, or let it take the place of that one when it is the same machine, installed anew", c.workload, where),
		Err:    fmt.Errorf("%s comes for the name %s, and %s", c.proof.Caller, c.workload, where)}
}

// mayReplace says why a new proof does not replace what is known of a workload. Within a group the
// newest operator's word wins, and a repeated one is not the newest; a token of another group is no
// word about this workload at all. Errors: *Refusal.
func (l *Ledger) mayReplace(w Workload, known bool, c issued) error {
	p := c.proof
	switch {
	case !known || p.How != tokenAttestor:
		return nil
	case w.Group != p.Group && w.mayReturn(c.now, l.grace):
		return &Refusal{Code: codes.PermissionDenied, Reason: "name of another group", Final: true,
			Public: "a workload of this name has joined another group: choose another name, or revoke the certificates of that one by their serial numbers first",
			Err: fmt.Errorf("workload %s joined group %q, and a token of group %q comes for it", c.workload, w.Group,
				p.Group)}
	case !p.repeats.IsZero() && !w.holds(c.key) && !w.Joined.Before(p.repeats):
		return refuseToken("token used",
			fmt.Errorf("%s was used at %s, and workload %s has joined anew or renewed since", p.Caller,
				p.repeats.Format(time.RFC3339), c.workload))
	}
	return nil
}

// mayReturn says that a workload has a certificate to come back with.
func (w *Workload) mayReturn(now time.Time, grace time.Duration) bool {
	return w.valid(now.Add(-grace))
}

// valid says that a workload has a certificate that has not ended and is not revoked.
func (w *Workload) valid(now time.Time) bool {
	for _, leaf := range w.Leaves {
		if !leaf.Revoked && leaf.NotAfter.After(now) {
			return true
		}
	}
	return false
}

// sweepClaims forgets who joined under which name a while ago.
func (l *Ledger) sweepClaims(ctx context.Context, now time.Time) error {
	records, err := l.records.List(ctx, claimTable)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range records {
		var c nameClaim
		if err := decodeRecord(r.Value, &c); err != nil || now.Sub(c.At).Abs() < claimTime {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, l.forget(ctx, record.Write{Key: r.Key, Version: r.Version}))
	}
	return errors.Join(errs...)
}
