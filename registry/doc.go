// Package registry defines services and their endpoints, and the workloads that are registered.
//
// A source (ServiceEntry objects, Consul, …) supplies Instances: one service with its endpoints.
// Service and EndpointList are immutable and replaced separately. So a changed endpoint leaves the
// pointer of the service, and everything that depends on it, unchanged. JoinConfig.Join joins the
// services that several sources supply for a host.
//
// A Runtime stores the registered workloads and their health. Package registry/shared implements it.
package registry
