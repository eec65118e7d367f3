// Package testlog gives tests a logger that writes to the test's own output, and a text for what a
// program or a log says.
package testlog
