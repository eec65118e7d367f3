package adminapi

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/settings"
)

// acceptor is an assembler that only accepts removals.
type acceptor struct {
	Assembler
	accept func(source string) (int, error)
}

func (a acceptor) AcceptRemovals(_ context.Context, source string) (int, error) {
	return a.accept(source)
}

// An operator accepts the removals of a source. Each attempt is in the audit log.
func TestAcceptRemovals(t *testing.T) {
	t.Parallel()
	down := errors.New("the assembler does not answer")
	for name, tc := range map[string]struct {
		source string
		err    error // of the assembler
		want   admin.Accepted
		is     error
		events []audit.Event
	}{
		"in the settings": {source: "files", want: admin.Accepted{Source: "files", Removed: 3},
			events: []audit.Event{{Action: audit.RemovalsAccept, Actor: "ann", Target: "files",
				Details: map[string]string{"removed": "3"}}}},
		"not in the settings any more": {source: "files:old", want: admin.Accepted{Source: "files:old", Removed: 2},
			events: []audit.Event{{Action: audit.RemovalsAccept, Actor: "ann", Target: "files:old",
				Details: map[string]string{"removed": "2"}}}},
		"unknown": {source: "flies", is: admin.ErrNotFound},
		"no answer": {source: "files", err: down, is: down, want: admin.Accepted{Source: "files"},
			events: []audit.Event{{Action: audit.RemovalsAccept, Actor: "ann", Target: "files",
				Outcome: audit.Failed, Reason: down.Error(), Details: map[string]string{"removed": "0"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var accepted string
			var events []audit.Event
			m := &API{
				Settings: settings.Config{SourceList: []settings.Source{{Name: "files", Kind: "files"}}},
				Assembler: acceptor{accept: func(source string) (int, error) {
					accepted = source
					return tc.want.Removed, tc.err
				}},
				Record: func(e audit.Event) { events = append(events, e) },
			}
			ctx := admin.WithCaller(t.Context(), "ann", admin.Operator)
			got, err := m.AcceptRemovals(ctx, admin.AcceptRequest{Source: tc.source})
			if got != tc.want || !errors.Is(err, tc.is) {
				t.Errorf("got %+v, %v; want %+v, %v", got, err, tc.want, tc.is)
			}
			if d := cmp.Diff(tc.events, events); d != "" {
				t.Errorf("audit events (-want +got):\n%s", d)
			}
			if len(tc.events) > 0 && accepted != tc.want.Source {
				t.Errorf("accepted is %q, want %q", accepted, tc.want.Source)
			}
		})
	}
}
