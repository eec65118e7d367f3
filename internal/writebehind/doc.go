// Package writebehind saves records in the background, so that a slow or full disk delays nothing.
//
// A Writer holds only the latest content of each record, as a function that encodes it. So its
// memory is bounded while saving fails. A crash loses what was put within the last 100 ms.
package writebehind
