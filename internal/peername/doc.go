// Package peername puts what metrics say of a workload into a DNS name of its certificate, so that
// servers know who calls them: w--web.a--shop.v--v1.c--prod.peer.ashore.
//
// The name is no identity. Nothing may be allowed because of it.
package peername
