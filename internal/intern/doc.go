// Package intern makes equal values one pointer, so that lists can stand in comparable inputs.
//
// Interned values are immutable. A value lives as long as somebody holds its pointer.
package intern
