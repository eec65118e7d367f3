// Package httpserver runs a server of net/http for as long as a part of a program runs.
//
// Run blocks until its context ends, lets requests that are under way finish for a bounded time,
// cuts the others off, and leaves no goroutine of its own behind. What the server answers, and the
// limits on time and size, are its maker's.
package httpserver
