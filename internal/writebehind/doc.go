// Package writebehind saves records in the background, so that a slow or full disk delays nothing.
//
// A Writer holds only the latest content of each record, as a function that encodes it. So its
// memory is bounded while saving fails. What was put within Gather before a crash is lost.
package writebehind
