package server

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/sdnotify"
)

const (
	// startupPoll is the interval of checks before ashored is ready, and laterPoll after that.
	startupPoll = 100 * time.Millisecond
	laterPoll   = 5 * time.Second
	// startupWait is how long systemd waits for sources that do not answer: a restart would not
	// help.
	startupWait = time.Minute
	// firstWarning is when the log first says what a start waits for.
	firstWarning = 10 * time.Second
)

// startup tells systemd when ashored is ready and that it is alive, and logs what a slow start
// waits for.
type startup struct {
	notifier sdnotify.Notifier
	waiting  func() []string             // what ashored waits for before it serves proxies
	responds func(context.Context) error // of the goroutine that builds what proxies get
	log      hclog.Logger
}

// run checks until ctx ends.
func (m *startup) run(ctx context.Context) error {
	watchdog, begun := m.notifier.Watchdog(), time.Now()
	poll, last := startupPoll, ""
	nextWarning := begun.Add(firstWarning)
	var alive time.Time
	for ctx.Err() == nil {
		waiting := m.waiting()
		status := "STATUS=ready"
		if len(waiting) > 0 {
			status = "STATUS=waits for " + strings.Join(waiting, ", ")
		}
		if status != last {
			last = status
			m.notifier.Tell(status)
		}
		if len(waiting) > 0 && time.Now().After(nextWarning) {
			nextWarning = time.Now().Add(time.Minute)
			m.log.Warn("proxies are not served yet: \"ashorectl sources\" says why", "waiting_for", waiting)
		}
		if poll == startupPoll && (len(waiting) == 0 || time.Since(begun) >= startupWait) {
			m.notifier.Tell(sdnotify.Ready)
			if poll = laterPoll; watchdog > 0 {
				poll = min(poll, watchdog)
			}
		}
		if watchdog > 0 && time.Since(alive) >= watchdog && m.responds(ctx) == nil {
			alive = time.Now()
			m.notifier.Tell(sdnotify.Alive)
		}
		select {
		case <-ctx.Done():
		case <-time.After(poll):
		}
	}
	return nil
}
