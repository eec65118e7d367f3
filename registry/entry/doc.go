// Package entry makes services of ServiceEntry and WorkloadEntry objects.
//
// A ServiceEntry becomes one service for each of its hosts, with its inline endpoints, or with the
// WorkloadEntries that its workloadSelector selects. A Deriver holds what was derived and works on
// what changed: a WorkloadEntry that comes or goes costs the entries that select it.
//
// A workload that registered itself counts like a WorkloadEntry that its WorkloadGroup would write for it. It is made of
// both whenever one of them changes, so that nothing has to be repaired when a group comes late, changes or goes.
//
// A ServiceEntry that another control plane made of what a registry knows there declares nothing: its service is Relayed, and in
// a group of its own.
//
// Virtual addresses of entries that declare none come from Addresses, which keeps them while they are in use. Since
// that may wait for a disk, Background asks in a goroutine of its own, and a Deriver by itself waits.
package entry
