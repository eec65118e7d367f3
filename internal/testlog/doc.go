// Package testlog gives tests a logger that writes to the test's own output.
package testlog
