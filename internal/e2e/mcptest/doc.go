// Package mcptest has a server of MCP over xDS for tests, on plain generated stubs. It serves a
// Store, which a test changes meanwhile, and can misbehave.
package mcptest
