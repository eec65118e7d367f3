// Package testconsul finds the real Consul for tests, and runs agents of it.
package testconsul
