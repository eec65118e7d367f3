package consul

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// The age of the copy, and of what is known in an outage, counts from when Consul was last there and not from the last change: in
// touch it is written down once a minute, and then when the outage begins.
func TestCopyTouched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		kept, log := newShelf(), testlog.New(t)
		s := &Store{turn: make(chan struct{}, 1), copy: lastgood.NewWriter(kept, "copy", lastgood.Pace{Gather: copyGap}, log)}
		s.state.Store(&state{})
		asOf := func() time.Time {
			t.Helper()
			time.Sleep(2 * copyGap)
			contents, err := kept.LoadLastGood(ctx, "copy")
			var about aboutCopy
			if err == nil {
				err = json.Unmarshal(contents[copyAbout], &about)
			}
			if err != nil {
				t.Errorf("read the copy: %v", err)
			}
			return about.AsOf
		}
		written, touched := make(chan struct{}), make(chan struct{})
		go func() { defer close(written); s.copy.Run(ctx) }()
		go func() { defer close(touched); s.touchCopy(ctx) }()
		s.standing.well(log)
		next := &state{}
		next.Log = "log"
		s.publish(next)
		time.Sleep(time.Hour + 50*time.Second)
		if age := time.Since(asOf()); age > copyTouch {
			t.Errorf("in touch, the copy is said to be %v old", age)
		}

		began := time.Now()
		s.standing.broken(began)
		time.Sleep(5 * time.Second)
		s.standing.ill(errors.New("away"), log)
		if since := s.Standing().Since; !since.Equal(began) {
			t.Errorf("the outage of %v began at %v", began, since)
		}
		for range 3 {
			if at := asOf(); !at.Equal(began) {
				t.Errorf("in the outage of %v the copy is of %v", began, at)
			}
			time.Sleep(copyTouch)
		}

		over := time.Now()
		s.standing.well(log)
		if at := asOf(); !at.Equal(over) {
			t.Errorf("after the outage the copy is of %v, want %v", at, over)
		}
		time.Sleep(time.Second)
		again := time.Now()
		s.standing.ill(errors.New("away"), log)
		if since := s.Standing().Since; !since.Equal(again) {
			t.Errorf("the next outage, of %v, began at %v", again, since)
		}
		cancel()
		<-touched
		s.copy.End()
		<-written
	})
}
