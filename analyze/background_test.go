package analyze_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/analyze"
)

// The mesh is analyzed one second after a change, and at most every five seconds.
func TestBackground(t *testing.T) {
	t.Parallel()
	wrong := build(t, route("shop/r", "hosts: [x.example.com], http: [{route: [{destination: {host: nowhere}}]}]"))
	worse := build(t, "# moved\n",
		route("shop/r", "hosts: [x.example.com], http: [{route: [{destination: {host: nowhere}}]}]"), route("shop/s",
			"hosts: [y.example.com], gateways: [none], http: [{redirect: {uri: /x}}]"))
	right := build(t, service("shop/web", "web.internal", ""))
	synctest.Test(t, func(t *testing.T) {
		start, b := time.Now(), analyze.NewBackground()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		sleep := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		findings := func(at time.Duration, want int) {
			t.Helper()
			sleep(time.Until(start.Add(at)))
			if got := len(b.Findings()); got != want {
				t.Errorf("%s: %d findings, want %d", at, got, want)
			}
		}
		b.Publish(right) // at 0s: replaced before the run
		findings(500*time.Millisecond, 0)
		b.Publish(wrong)
		findings(900*time.Millisecond, 0)
		findings(1100*time.Millisecond, 1) // run at 1s
		sleep(1400 * time.Millisecond)
		b.Publish(worse) // at 2.5s: run at 6s, five seconds after the last
		findings(5900*time.Millisecond, 1)
		findings(6100*time.Millisecond, 2)
		sleep(6150 * time.Millisecond)
		for range 10 { // from 12.25s to 22.25s, without a quiet second: runs at 13.25s and 18.25s
			b.Publish(wrong)
			sleep(500 * time.Millisecond)
			b.Publish(right)
			sleep(500 * time.Millisecond)
		}
		findings(35*time.Second, 0)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
