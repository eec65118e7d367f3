// Package machines tests Ashore on real machines: systemd containers on a network of their own,
// into which the packages are installed as an operator would.
package machines
