// Package sdnotify tells systemd how a daemon is: sd_notify(3). Without systemd it does nothing.
package sdnotify
