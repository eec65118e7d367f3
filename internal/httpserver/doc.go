// Package httpserver runs a server of net/http until a context ends.
//
// Run lets active requests finish for a limited time, closes the other connections, and leaves no
// goroutine behind. The caller sets the handler and the limits on time and size.
package httpserver
