// Package consul supplies the services of a Consul catalog, and registers services of the mesh
// there.
//
// A Source has a watch for the catalog of each datacenter. The catalog watch starts and stops one
// watch per service (catalog.go, service.go). A watch repeats a blocking query (watch.go). Over
// HTTP/2 all watches share a few connections. Over plain HTTP at most 100 services are watched at
// once, and the others are polled. A converter turns each answer into services and endpoints; it
// has no I/O (convert.go, instance.go, ports.go). A syncer keeps the state and sends batches
// (syncer.go).
//
// What a Source promises:
//
//   - Each service of a datacenter is a group. One more group for each datacenter carries its
//     problems.
//   - The first batch is sent when every datacenter has delivered all its services or has failed.
//     The first batch that covers all datacenters is Full, so that an unreachable datacenter keeps
//     its saved groups.
//   - A batch reports Down only if no datacenter is reachable.
//   - If Consul lost its data, one batch removes all services, so that feed retains them (R4). See
//     setServices.
//   - A service stays active after the ACL token loses access to it.
//
// A Source retains nothing across restarts and does not check whether an answer is plausible. The
// feed package does.
//
// An Exporter keeps services of the mesh registered in Consul, on its own node for each replica
// (exporter.go). In each round it turns the endpoints of the mesh into entries (exportentry.go), and
// writes the differences to what Consul has (exportround.go).
package consul
