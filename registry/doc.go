// Package registry defines services and their endpoints, and which workloads are registered.
//
// A source (ServiceEntry objects, Consul, …) supplies Instances: one service with its endpoints.
// Service and EndpointList are immutable and replaced separately, so a changed endpoint leaves the
// service's pointer, and everything that depends on it, unchanged. JoinConfig.Join makes one service
// of what several sources supply for a host.
//
// A Runtime keeps the workloads that registered, and their health. Memory is the one for a single
// machine; registry/shared is for replicas that share a store.
package registry
