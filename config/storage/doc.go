// Package storage is what all implementations of config.Store have in common: what they refuse, in
// which words, and how they encode objects and their history.
package storage
