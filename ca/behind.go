package ca

import (
	"cmp"
	"fmt"

	"google.golang.org/grpc/codes"
)

// reasonBehind is why somebody is refused of whom other replicas may know.
const reasonBehind = "out of touch"

// publicBehind is what he is told: it is no word about what he came with.
const publicBehind = "this control plane is out of touch with the store that it shares, and cannot tell now: try again, or ask another one"

// behind says why the records may lack what other replicas wrote; nil: they have all.
func (l *Ledger) behind() error {
	if l.follower == nil {
		return nil
	}
	return l.follower.Behind()
}

// unsure is r, which says that something is not there. Where the records may lack what other
// replicas wrote that is not known: who comes is told to try again, or to ask another one. before
// is what behind was before the records were read.
func (l *Ledger) unsure(before error, r *Refusal) *Refusal {
	why := cmp.Or(before, l.behind())
	if why == nil {
		return r
	}
	return &Refusal{Code: codes.Unavailable, Public: publicBehind, Reason: reasonBehind, Final: r.Final,
		Err: fmt.Errorf("%w, as far as this replica knows, which is out of touch with the store that it shares: %w",
			r.Err, why)}
}
