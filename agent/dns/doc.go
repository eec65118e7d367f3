// Package dns answers the DNS queries of a machine.
//
// A Server answers A and AAAA queries for the names of the mesh from a Table, which the control
// plane sends. It forwards all other queries to the servers of /etc/resolv.conf. It needs no table
// and no control plane to forward. It has no cache: the servers behind it have one.
//
// The package does not redirect queries and does not know xDS.
package dns
