// Package vip gives the services of registries virtual addresses, as ServiceEntries are given them: one host, one address,
// allocated once and never another.
//
// Source wraps any source of services. It asks Addresses in a goroutine of its own, so that nobody waits for a disk for
// long; a service that has no address yet goes on without, and a problem says so. The package does not choose
// addresses and keeps none: that is for who implements Addresses.
package vip
