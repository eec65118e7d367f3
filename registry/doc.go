// Package registry is what runs: services, their endpoints, and where they are.
//
// A registry (ServiceEntry objects, Consul, …) supplies Instances: one service with its endpoints.
// Service and EndpointList are immutable and replaced separately, so that an endpoint that comes or
// goes leaves the service's pointer, and everything that depends on it, alone.
//
// A Runtime holds the workloads that registered themselves, their health, and for how long they
// count. Memory is the one for a single machine, registry/shared is for replicas that share a
// store.
package registry
