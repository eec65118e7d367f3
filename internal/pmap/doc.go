// Package pmap is an ordered map that never changes: every edit returns a new map that shares all
// but the path to the edited entry, O(log n).
//
// A Map is a comparable value of one pointer, so a map can be part of a cached input: equal
// pointers mean equal contents. The shape depends only on the keys, so that Diff of two maps of one
// origin costs what differs, not what they hold.
package pmap
