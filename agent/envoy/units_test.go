package envoy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"
)

// silentSystemd answers every other call.
type silentSystemd struct {
	Manager
	calls int
}

func (m *silentSystemd) Look(context.Context, string) (UnitState, error) {
	if m.calls++; m.calls%2 == 0 {
		return UnitState{}, errors.New("no answer")
	}
	return UnitState{PID: 7, Active: "active"}, nil
}

// An Envoy counts as running while systemd does not answer.
func TestSystemdSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := &Units{restarter: restarter{log: hclog.NewNullLogger()}, manager: &silentSystemd{}, launch: &launch{}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*unitPoll)
		defer cancel()
		if err := u.watch(ctx); !errors.Is(err, context.DeadlineExceeded) || u.State().PID != 7 {
			t.Errorf("watch: %v, state %+v", err, u.State())
		}
	})
}
