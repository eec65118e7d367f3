// Package shared is a registry.Runtime for any number of replicas, which share a record.Store.
//
// A registration is one record, and whoever writes it last speaks for the workload. What a stream of this replica says
// counts here at once, and everywhere when the record is written: some milliseconds later, or when the store is back. Until
// then nobody waits for it: no stream is cut and no proxy is refused because the store is away.
//
// A registration ends when its record is deleted, never by a clock of one replica alone, so that all replicas tell the same.
// Each replica has one record that it writes anew every few seconds: nothing else is written while nothing happens, however
// many workloads there are. The registrations of a replica that writes it no more count for a while, so that their proxies
// can turn to another; then those that are alive delete what is left. Time is measured, never read from another's clock.
package shared
