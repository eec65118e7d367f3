// Package entry derives services from ServiceEntry, WorkloadEntry and WorkloadGroup objects, and
// from the workloads that registered.
//
// A ServiceEntry becomes one service for each of its hosts. Its endpoints are those that it lists,
// or the workloads that its workloadSelector selects. A registered workload is treated as a
// WorkloadEntry with the template of its WorkloadGroup.
//
// A Deriver is a source of the assembler. It does not wait and allocates no addresses. The cost of
// a change grows with the number of affected services. Synthetic is the reverse: it describes a
// service of a registry as a ServiceEntry, for other control planes.
package entry
