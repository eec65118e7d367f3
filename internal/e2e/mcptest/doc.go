// Package mcptest has a server of MCP over xDS for tests, on plain generated stubs. It serves a
// Store that tests change, and can violate the protocol.
package mcptest
