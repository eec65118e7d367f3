// Package admin is the operator's view into a running ashored: HTTP with JSON over a unix socket.
//
// Server answers from a Backend, which the program connects to its parts; Client is the other end,
// used by ashorectl. The types of this page are the wire format. Who may ask is decided by the peer
// credentials of the socket, never by an address: the user that ashored runs as, and root.
//
//	GET /v1/version                                  Version
//	GET /v1/status                                   Status
//	GET /v1/problems                                 []feed.Problem
//	GET /v1/objects?kind=K[&namespace=N][&name=N]    []Object
//	GET /v1/dump?proxy=P[&type=cds]                  Dump
//	GET /debug/pprof/…                               Go's profiles
//
// Errors are {"error": text} with a status that says whose fault it is. Nothing here changes anything.
package admin
