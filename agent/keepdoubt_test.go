package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
)

// A certificate that a control plane refuses is replaced at once, and not again because the new one is refused too; what
// cannot be had is tried for as always.
func TestDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		k := kept(t, m, 24*time.Hour)
		asked := answers(t, k, m, 24*time.Hour, func() error { return nil })
		end := keeping(t, k)
		defer end()
		doubt := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			for range 3 {
				k.Doubt()
				synctest.Wait()
			}
			if got := len(asked()); got != want {
				t.Errorf("asked %d times, want %d", got, want)
			}
		}
		doubt(time.Hour, 1)
		doubt(time.Second, 1)
		doubt(time.Minute, 2)
	})
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		k := kept(t, m, 24*time.Hour)
		asked := answers(t, k, m, 24*time.Hour, func() error { return errors.New("away") })
		end := keeping(t, k)
		defer end()
		time.Sleep(time.Hour)
		k.Doubt()
		synctest.Wait()
		first := len(asked())
		for range 100 {
			k.Doubt()
			synctest.Wait()
		}
		if got := len(asked()); first != 1 || got != 1 {
			t.Errorf("asked %d times, then %d; want one", first, got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(asked()) < 2 {
			t.Error("it is not tried again")
		}
	})
}

// Who was not renewed because he was refused is so at once when a control plane accepts him again; nobody else asks before it is
// time.
func TestAccepted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"refused": {&RefusedError{Address: "a:1", Code: codes.Unauthenticated, Text: "revoked"}, 2},
		"away":    {errors.New("away"), 1},
		"well":    {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMesh(t, "cluster.local")
				k := kept(t, m, 24*time.Hour)
				err := tc.err
				asked := answers(t, k, m, 24*time.Hour, func() error { return err })
				end := keeping(t, k)
				defer end()
				time.Sleep(time.Hour)
				k.Doubt()
				synctest.Wait()
				err = nil
				k.Accepted()
				synctest.Wait()
				if got := len(asked()); got != tc.want || tc.want == 2 && k.Renewal().Trouble != nil {
					t.Errorf("asked %d times, want %d; trouble %v", got, tc.want, k.Renewal().Trouble)
				}
			})
		})
	}
}
