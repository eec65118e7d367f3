// Package task runs the parts of a program together, and has what parts wait with.
//
// A Part blocks in Run until its context ends. Run starts all parts, ends all when one fails, turns
// a panic into an error and leaves no goroutine behind. Only programs use it: parts do not start
// parts. Parts use Sleep, Poke and Broadcaster.
package task
