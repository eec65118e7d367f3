// Package admin is the operator's view into a running ashored: HTTP with JSON over a unix socket.
//
// Server answers from a Backend and some smaller ones, which the program connects to its parts;
// Client is the other end, used by ashorectl. Each noun has a file with its types, which are the
// wire format, its backend, its routes and its part of the client. Who may ask is decided by the
// peer credentials of the socket, never by an address: root and the user that ashored runs as are
// admins, others have the role that Roles gives them, and who has none is refused and audited.
//
//	GET    /v1/version                                      viewer    Version
//	GET    /v1/status                                       viewer    Status
//	GET    /v1/problems                                     viewer    []feed.Problem
//	GET    /v1/objects?kind=K[&namespace=N][&name=N]        viewer    []Object
//	GET    /v1/services[?namespace=N&host=H&endpoints=true&watch=true] viewer    a stream of ServiceEvent, one a line
//	GET    /v1/dump?proxy=P[&type=cds]                      operator  Dump; audited
//	POST   /v1/join-tokens {TokenRequest}                   operator  Token
//	GET    /v1/join-tokens                                  viewer    []TokenStatus
//	DELETE /v1/join-tokens/ID                               operator  {}
//	GET    /v1/ca                                           viewer    Authority
//	POST   /v1/ca/rotate {RotateRequest}                    admin     Authority
//	POST   /v1/ca/replica-tokens {ReplicaTokenRequest}      admin     ReplicaToken
//	GET    /v1/workloads                                    viewer    WorkloadList
//	POST   /v1/workloads/revoke {RevokeRequest}             operator  Revoked
//	POST   /v1/workloads/restore {RevokeRequest}            operator  Revoked
//	POST   /v1/sources/accept-removals {AcceptRequest}      operator  Accepted; audited
//	POST   /v1/vips/release                                 operator  ReleasedVIPs; audited
//	GET    /v1/audit?n=20[&follow=true]                     operator  a stream of audit.Event, one a line
//	GET    /v1/authz/explain?from=F&to=T[&port=P&method=M&path=P] viewer    Explanation
//	GET    /v1/store/objects[?kind=K&namespace=N&name=N]    viewer    []Object
//	GET    /v1/store/history[?kind=K&namespace=N&name=N&limit=20&…] viewer    StoreHistory
//	POST   /v1/store/apply {Piece}…                         operator  Written; audited
//	POST   /v1/store/delete {Piece}…                        operator  Written; audited
//	POST   /v1/store/rollback {RollbackRequest}             operator  Written; audited
//	POST   /v1/store/preview/apply {Piece}…                 viewer    Written; nothing is
//	POST   /v1/store/preview/delete {Piece}…                viewer    Written; nothing is
//	POST   /v1/store/preview/rollback {RollbackRequest}     viewer    Written; nothing is
//	GET    /debug/pprof/…                            admin     Go's profiles
//
// Errors are {"error": text} with a status that says whose fault it is.
package admin
