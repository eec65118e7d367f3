// Package vip gives the services of registries virtual addresses, as ServiceEntries are given them: one host, one address,
// which is never another while the host is there.
//
// Source wraps any source of services. It asks Addresses in a goroutine of its own, so that nobody waits for a disk for
// long; a service that has no address yet goes on without, and one problem says so of all that do.
//
// Book is what all users of addresses on a replica share, each by a Holder. It knows which hosts are in use, notes in the Ledger
// which are idle, and has the addresses of those that have been for long given to others when there are no free ones. The
// package does not choose addresses and keeps none: that is for who implements Ledger.
package vip
