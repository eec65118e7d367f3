package agent

import "time"

// Notifications for the service manager. Source: sd_notify(3).
const (
	started  = "READY=1"
	stopping = "STOPPING=1"
	alive    = "WATCHDOG=1"
)

// startupWait is how long the service manager waits for Envoy. After that the agent counts as started all the same: an
// Envoy that waits for a control plane is no reason to start the agent anew.
const startupWait = 20 * time.Second

// notifier tells the service manager how the agent is. All but tell belongs to one goroutine.
type notifier struct {
	notify   func(string)  // nil: there is no service manager
	watchdog time.Duration // zero: no WATCHDOG=1

	started bool
	last    string    // the latest status text
	pinged  time.Time // the latest sign of life
}

func (n *notifier) tell(state string) {
	if n.notify != nil {
		n.notify(state)
	}
}

// notify tells what a look at Envoy found, and that the agent is alive: its loop runs, and the link with the control
// plane answers.
func (a *Agent) notify(trouble error, since time.Duration) {
	n := &a.notifier
	text := "STATUS=Envoy is ready"
	if trouble != nil {
		text = "STATUS=" + oneLine(trouble.Error())
	}
	if text != n.last {
		n.last = text
		n.tell(text)
	}
	if !n.started && (trouble == nil || since >= startupWait) {
		n.started = true
		n.tell(started)
	}
	if a.link != nil {
		a.link.LinkState() // a deadlock ends the signs of life
	}
	if n.watchdog > 0 && time.Since(n.pinged) >= n.watchdog {
		n.pinged = time.Now()
		n.tell(alive)
	}
}
