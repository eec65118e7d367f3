// Package store tests what operators do to the store with ashorectl, against a real ashored: what
// they apply reaches real Envoys, all of it or nothing, whoever is killed, interrupted or without
// room in the middle.
package store
