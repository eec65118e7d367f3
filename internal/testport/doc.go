// Package testport finds ports for servers that a test starts later, or starts again.
//
// A port that the kernel gave and got back may go to somebody else's connection at any moment.
// Those of this package lie below the range that connections get, and belong to one test of this
// machine until it ends.
package testport
