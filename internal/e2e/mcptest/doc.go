// Package mcptest has servers of configuration that were written for tests alone, on plain generated stubs: one of MCP over
// xDS, and a source of the older protocol. Each holds a Store, which a test changes while it is served, and can misbehave.
package mcptest
