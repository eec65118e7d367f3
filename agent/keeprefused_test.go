package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A certificate that a control plane refuses is replaced at once, and not again because the new one
// is refused too; what cannot be had is tried for as always.
func TestRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		k := kept(t, m, 24*time.Hour)
		asked := answers(t, k, m, 24*time.Hour, func() error { return nil })
		end := keeping(t, k)
		defer end()
		refuse := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			for range 3 {
				k.Refused()
				synctest.Wait()
			}
			if got := len(asked()); got != want {
				t.Errorf("asked %d times, want %d", got, want)
			}
		}
		refuse(time.Hour, 1)
		refuse(time.Second, 1)
		refuse(time.Minute, 2)
	})
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "cluster.local")
		k := kept(t, m, 24*time.Hour)
		asked := answers(t, k, m, 24*time.Hour, func() error { return errors.New("away") })
		end := keeping(t, k)
		defer end()
		time.Sleep(time.Hour)
		k.Refused()
		synctest.Wait()
		first := len(asked())
		for range 100 {
			k.Refused()
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
