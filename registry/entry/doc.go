// Package entry derives services from ServiceEntry, WorkloadEntry and WorkloadGroup objects, and from
// the workloads that registered.
//
// A ServiceEntry becomes one service for each of its hosts. Its endpoints are those that it lists, or
// the workloads that its workloadSelector selects. A registered workload counts as a WorkloadEntry that
// is made from the template of its WorkloadGroup.
//
// A Deriver is an input of the assembler. It does not wait and allocates no addresses, and a change
// costs what the services cost that it concerns. Synthetic is the reverse: it describes a service of a
// registry as a ServiceEntry, for other control planes.
package entry
