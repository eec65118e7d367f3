package agent

import (
	"strconv"
	"time"

	"github.com/ashore-mesh/ashore/internal/sdnotify"
)

// startupWait is how long the service manager waits for Envoy. After that the agent counts as
// started: an Envoy that waits for a control plane is no reason to restart the agent.
const startupWait = 20 * time.Second

// notifier reports the agent's state to the service manager. Only send may be called concurrently.
type notifier struct {
	notify   func(string)  // nil: there is no service manager
	watchdog time.Duration // zero: no WATCHDOG=1

	started bool
	pinged  time.Time // when WATCHDOG=1 was sent last
}

func (n *notifier) send(state string) {
	if n.notify != nil {
		n.notify(state)
	}
}

// stopping reports that the agent ends, and how long that may take. A longer timeout of the service
// manager stays in force. Source: sd_notify(3).
func (n *notifier) stopping(most time.Duration) {
	n.send(sdnotify.Stopping)
	n.send("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(most.Microseconds(), 10))
}

// notify reports the result of a check of Envoy, and that the agent is alive.
func (a *Agent) notify(problem error, since time.Duration) {
	n := &a.notifier
	if !n.started && (problem == nil || since >= startupWait) {
		n.started = true
		n.send(sdnotify.Ready)
	}
	a.relay.Status() // a deadlock of the relay stops the watchdog's messages
	if n.watchdog > 0 && time.Since(n.pinged) >= n.watchdog {
		n.pinged = time.Now()
		n.send(sdnotify.Alive)
	}
}
