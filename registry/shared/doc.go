// Package shared is a registry.Runtime for one or several replicas over a record.Store, which the
// replicas share.
//
// A registration is one record. What a stream of this replica sends is active on this replica at
// once. It is active on the others when it is written: after milliseconds, or when the store is
// available again. Streams never wait for the store. Replicas write heartbeats; workloads do not.
//
// When a workload has sessions on two replicas, the one that connected last is active. When it ends
// and the other is still connected, the other becomes active again.
//
// A registration ends when its record is deleted, so all replicas agree on it. That happens Grace
// after its proxy disconnected, or RestartGrace after its replica stopped sending heartbeats. These
// times start again when the store was unavailable.
//
// A replica that is alone writes no heartbeats. Registrations from before its start last
// RestartGrace, unless their proxies connect.
//
// Limits: if a replica cannot reach the store for longer than RestartGrace, the other replicas
// delete its registrations. It writes them again when it reaches the store.
package shared
