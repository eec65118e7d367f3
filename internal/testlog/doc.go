// Package testlog provides a logger that writes to the output of a test, and a writer that stores
// the output of a program or a log.
package testlog
