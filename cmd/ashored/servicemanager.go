package main

import (
	"context"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/sdnotify"
)

const (
	// startupPoll is between two looks before ashored is ready, and laterPoll after that.
	startupPoll = 100 * time.Millisecond
	laterPoll   = 5 * time.Second
	// startupWait is how long systemd waits for sources that do not answer: starting ashored anew
	// would not help.
	startupWait = time.Minute
)

// serviceManager tells systemd when ashored is ready, and that it is alive: the goroutine that
// builds what proxies get answers.
type serviceManager struct {
	notifier sdnotify.Notifier
	waiting  func() []string // what ashored waits for before it serves proxies
	responds func(context.Context) error
}

// run tells until ctx ends.
func (m *serviceManager) run(ctx context.Context) error {
	watchdog, begun := m.notifier.Watchdog(), time.Now()
	poll, told := startupPoll, ""
	var alive time.Time
	for ctx.Err() == nil {
		waiting := m.waiting()
		status := "STATUS=ready"
		if len(waiting) > 0 {
			status = "STATUS=waits for " + strings.Join(waiting, ", ")
		}
		if status != told {
			told = status
			m.notifier.Tell(status)
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
	m.notifier.Tell(sdnotify.Stopping)
	return nil
}
