// Package nearest finds the known name that an unknown one was most likely meant to be, for hints
// in messages.
package nearest
