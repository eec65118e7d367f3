package envoy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
)

// Envoy that ends is started again after a growing pause, which starts again after a run that was
// steady.
func TestRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lives := []time.Duration{0, 0, 0, 0, time.Second, 2 * time.Minute, 0}
		var starts []time.Duration // since the start of the test
		begin := time.Now()
		last, end := context.WithCancel(t.Context())
		r := restarter{log: hclog.NewNullLogger()}
		r.repeat(t.Context(), last, func(context.Context) error {
			starts = append(starts, time.Since(begin))
			n := len(starts) - 1
			if n == len(lives) {
				end()
				return errors.New("asked to")
			}
			time.Sleep(lives[n])
			return errors.New("exit status 1")
		})
		ms := time.Millisecond
		want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 4100 * ms, 124200 * ms, 124400 * ms}
		if d := cmp.Diff(want, starts); d != "" {
			t.Errorf("starts (-want +got):\n%s", d)
		}
		if got := r.State().Problem; got != "exit status 1" {
			t.Errorf("problem %q", got)
		}
	})
}

// The pause never grows beyond its bound, and the end does not wait for it.
func TestRestartPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := restarter{log: hclog.NewNullLogger()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
		defer cancel()
		begin, runs := time.Now(), 0
		r.repeat(ctx, t.Context(), func(context.Context) error { runs++; return errors.New("exit status 1") })
		if took := time.Since(begin); took != time.Hour+time.Second {
			t.Errorf("ended after %v", took)
		}
		if least := int(time.Hour / longestPause); runs < least {
			t.Errorf("%d runs in an hour, want at least %d", runs, least)
		}
	})
}

// The drain waits for open connections, and never longer than its maximum.
func TestWaitClosed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		max    time.Duration
		idleAt time.Duration // when the last connection goes; -1: never
		endsAt time.Duration // when Envoy ends; 0: never
		want   time.Duration
		left   uint64
	}{
		{"idle", 5 * time.Second, 0, 0, 0, 0},
		{"busy for a while", 5 * time.Second, 2500 * time.Millisecond, 0, 2600 * time.Millisecond, 0},
		{"always busy", 5 * time.Second, -1, 0, 5 * time.Second, 3},
		{"no time at all", 0, -1, 0, 0, 3},
		{"Envoy ends", 5 * time.Second, -1, 1500 * time.Millisecond, 1600 * time.Millisecond, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				left := waitClosed(t.Context(), tc.max, func(context.Context) (uint64, error) {
					now := time.Since(begin)
					switch {
					case tc.endsAt > 0 && now >= tc.endsAt:
						return 0, errors.New("gone")
					case tc.idleAt < 0 || now < tc.idleAt:
						return 3, nil
					}
					return 0, nil
				})
				if took := time.Since(begin); took != tc.want || left != tc.left {
					t.Errorf("took %v with %d left, want %v and %d", took, left, tc.want, tc.left)
				}
			})
		})
	}
}
