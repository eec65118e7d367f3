// Package unfinished bounds what a server holds of requests that have not arrived in full.
//
// A gRPC server collects the frames of a message until it is complete, and no handler sees it
// before. A client that begins many messages and ends none takes as much memory as it likes, all
// the more with frames of a byte. A Conn reads along: it counts unfinished bytes by the frames of
// HTTP/2 and the lengths of gRPC's messages. It ends a connection when all of its Budget have too
// much.
package unfinished
