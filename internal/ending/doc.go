// Package ending ends a program in order at the first signal and at once at the second, and logs
// the error that ended it.
package ending
