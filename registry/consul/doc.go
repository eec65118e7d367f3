// Package consul supplies the services of a Consul catalogue, with their health, as Consul changes them.
//
// A Source asks for each service by a blocking query (/v1/health/service), so that a change costs one answer, of the one
// service that it is about. Over TLS all of these share a few HTTP/2 connections. Without TLS, where each occupies a
// connection and Consul allows 200 to a client, services beyond the bound are asked when one of a few other queries says that
// they may have changed: those for checks that do not pass, and that for the names of all services (ADR 0016).
//
// What Consul answers is mapped to services and endpoints by pure functions (convert.go and the files beside it), as
// docs/consul.md tells. What meshes have registered is left out. An outage never takes a service away: that of all
// of Consul is a Standing of the source, that of a datacenter or a service a Problem of its group (ADR 0026).
//
// An Exporter goes the other way: it keeps services of the mesh registered in Consul, on a node of their own and under a lease
// that one replica holds at a time (ADR 0023).
package consul
