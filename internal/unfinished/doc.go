// Package unfinished limits the memory for requests that have not arrived completely.
//
// A gRPC server collects the frames of a message until it is complete, and no handler sees it
// before. So a client that begins many messages and ends none could use any amount of memory. A
// Conn inspects what is read: it counts unfinished bytes by the frames of HTTP/2 and the lengths of
// gRPC's messages. It ends a connection when all of its Budget have too much.
package unfinished
