// Package storage is what all implementations of config.Store have in common: what they refuse, and
// in which words.
package storage
