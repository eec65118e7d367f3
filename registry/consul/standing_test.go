package consul

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
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

// A line of the log is written at once when something is wrong and when it is over; what is wrong then, or otherwise, comes a
// minute after the last such line, if it still is.
func TestTeller(t *testing.T) {
	t.Parallel()
	var l teller
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, step := range []struct {
		text  string
		after time.Duration
		say   bool
		later time.Duration
	}{
		{"", 0, false, 0},
		{"a", time.Second, true, 0},
		{"a", 2 * time.Second, false, 0},
		{"b", 3 * time.Second, false, time.Second + logGap},
		{"", 4 * time.Second, true, 0},
		{"a", 5 * time.Second, false, time.Second + logGap},
		{"", 6 * time.Second, false, 0},
		{"b", time.Second + logGap, true, 0},
		{"a", 2*time.Second + logGap, false, time.Second + 2*logGap},
		{"a", time.Second + 2*logGap, true, 0},
	} {
		say, later := l.due(step.text, begin.Add(step.after))
		if say != step.say || later.IsZero() != (step.later == 0) || step.later > 0 && !later.Equal(begin.Add(step.later)) {
			t.Errorf("%q after %v: said %v, next at %v; want %v, %v", step.text, step.after, say, later, step.say, step.later)
		}
	}
}

// Troubles of many services, each its own, are told of in few batches.
func TestManyTroubles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const services = 500
		c := newCatalogs(numbered(services)...)
		f := c.look(t, Options{Connections: 2 * services}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Minute)
		batches := f.said()
		c.change(func() {
			c.fails = func(_, path string) bool { return strings.HasPrefix(path, "/v1/health/service/") }
		})
		time.Sleep(10 * time.Minute)
		if n := f.said() - batches; n > 20 || f.tells("answers 500") != services {
			t.Errorf("%d problems in %d batches, want %d in at most 20", f.tells("answers 500"), n, services)
		}
	})
}

// A trouble of a service that is told of once more, as each failed question does, has nothing reviewed.
func TestSameTrouble(t *testing.T) {
	t.Parallel()
	began := time.Now()
	k := newKeeper(&Options{Connections: 8}, nil, hclog.NewNullLogger())
	k.told = true
	sc := newScope(place{})
	s := sc.newService("web")
	sc.services["web"] = s
	for _, step := range []struct {
		what string
		t    *trouble
		want bool
	}{
		{"a trouble", &trouble{text: "a", since: began}, true},
		{"the same", &trouble{text: "a", since: began, noticed: began.Add(time.Second)}, false},
		{"another", &trouble{text: "b", since: began}, true},
		{"which began before", &trouble{text: "b", since: began.Add(-time.Second)}, true},
		{"and again", &trouble{text: "b", since: began.Add(-time.Second)}, false},
		{"none", nil, true},
	} {
		k.stirred = false
		if k.fails(sc, s, step.t); k.stirred != step.want {
			t.Errorf("%s: there is something to review: %v, want %v", step.what, k.stirred, step.want)
		}
	}
}
