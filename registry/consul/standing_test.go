package consul

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// An outage began with the first question that failed, though it is told after the next one. A wait for a change that went well
// until then is no part of it.
func TestOutageBegan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := &Options{Address: "consul.test:8500", Connections: 8}
		k := newKeeper(o, &client{o: o}, testlog.New(t))
		var asked int
		var began time.Time
		var got *trouble
		ask := func(context.Context, uint64) (answer, func(verdict) error, error) {
			switch asked++; asked {
			case 1:
				return answer{index: 7}, func(verdict) error { return nil }, nil
			case 2:
				time.Sleep(time.Minute)
				began = time.Now()
			default:
				time.Sleep(5 * time.Second)
			}
			return answer{}, nil, errors.New("connection refused")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.follow(ctx, follower{what: "the names", tell: func(t *trouble) { got = t }, ask: ask})
		}()
		for range 3 {
			(<-k.do)()
			if got == nil || got.text == "" || !got.since.Equal(began) {
				t.Errorf("%+v, want it since %v", got, began)
			}
		}
		cancel()
		<-done
	})
}
