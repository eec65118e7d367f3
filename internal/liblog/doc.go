// Package liblog writes the messages of gRPC and of Go's log package to the program's own log, in
// its format and at its level.
//
// A Log applies to the whole process. Programs call Own at the start of main, and Follow once their
// own log exists.
package liblog
