// Package mcp tests the exchange of configuration with other control planes against peers that were written for the test
// alone, on plain generated stubs: a server and a client of MCP over xDS, and a source and a sink of the older protocol.
// It holds nothing but tests.
package mcp
