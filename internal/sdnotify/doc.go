// Package sdnotify reports the state of a daemon to systemd: sd_notify(3). Without systemd it does
// nothing.
package sdnotify
