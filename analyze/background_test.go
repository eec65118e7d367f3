package analyze_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/analyze"
)

// reports are the times, in seconds since the start, and the numbers of what appeared and is gone.
type reports struct {
	mu    sync.Mutex
	start time.Time
	list  []string
}

func (r *reports) add(appeared, gone []analyze.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprintf("%gs +%d -%d", time.Since(r.start).Seconds(), len(appeared), len(gone)))
}

// The mesh is analyzed one second after a change, and at most every five seconds.
func TestBackground(t *testing.T) {
	t.Parallel()
	wrong := build(t, route("shop/r", "hosts: [x.example.com], http: [{route: [{destination: {host: nowhere}}]}]"))
	worse := build(t, "# moved\n",
		route("shop/r", "hosts: [x.example.com], http: [{route: [{destination: {host: nowhere}}]}]"), route("shop/s",
			"hosts: [y.example.com], gateways: [none], http: [{redirect: {uri: /x}}]"))
	right := build(t, service("shop/web", "web.internal", ""))
	synctest.Test(t, func(t *testing.T) {
		r := &reports{start: time.Now()}
		b := analyze.NewBackground(r.add)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		sleep := func(d time.Duration) { time.Sleep(d); synctest.Wait() }

		b.Publish(right) // at 0s: replaced before the run
		sleep(500 * time.Millisecond)
		b.Publish(wrong)
		sleep(2 * time.Second) // run at 1s
		b.Publish(worse)       // at 2.5s: run at 6s, five seconds after the last
		sleep(7500 * time.Millisecond)
		b.Publish(worse) // at 10s: run at 11s, without a difference
		sleep(2250 * time.Millisecond)
		for range 10 { // from 12.25s to 22.25s, without a quiet second: runs at 16s and 21s
			b.Publish(wrong)
			sleep(500 * time.Millisecond)
			b.Publish(right)
			sleep(500 * time.Millisecond)
		}
		sleep(10 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := []string{"1s +1 -0", "6s +1 -0", "16s +0 -2"}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.list) < 3 || !slices.Equal(r.list[:3], want) {
			t.Errorf("reports %v, want %v first", r.list, want)
		}
		if got := b.Findings(); len(got) != 0 {
			t.Errorf("the last findings are %v, want none", text(got))
		}
	})
}
