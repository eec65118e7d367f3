// Package liblog writes the messages of gRPC and of Go's log package to the log of the program, in
// its format and at its level.
//
// A Log applies to the whole process. Programs create it in main, and call Follow once they have a
// log.
package liblog
