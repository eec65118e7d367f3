// Package machines tests Ashore on real machines: systemd containers on a separate network. The
// packages are installed as an operator would install them.
package machines
