package sdnotify

import (
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
)

// States of sd_notify(3).
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
	Alive    = daemon.SdNotifyWatchdog
)

// Notifier sends to the service manager that started this process.
type Notifier struct{ Log hclog.Logger }

// Tell sends a state, such as "READY=1".
func (n Notifier) Tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.Log.Warn("systemd was not notified", "state", state, "error", err)
	}
}

// Reloading reports that the settings are reloaded. "READY=1" ends it.
func (n Notifier) Reloading() {
	n.Tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// Watchdog returns the interval of WATCHDOG=1, half of WatchdogSec=. Zero means never.
func (n Notifier) Watchdog() time.Duration {
	d, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.Log.Warn("the watchdog's settings cannot be read: systemd gets no signs of life", "error", err)
	}
	return d / 2
}
