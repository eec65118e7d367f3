// Package testenvoy finds the real Envoy for tests, and runs it.
package testenvoy
