// Package entry makes services of ServiceEntry and WorkloadEntry objects.
//
// A ServiceEntry becomes one service for each of its hosts. Its endpoints are those that it lists, or the WorkloadEntries that its
// workloadSelector selects. A workload that registered counts like a WorkloadEntry that its WorkloadGroup describes.
//
// A Deriver keeps what it derived, and a change costs only the services that it concerns. Synthetic is the reverse: it
// describes a service of a registry as a ServiceEntry, for other control planes.
package entry
