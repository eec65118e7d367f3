// Package mcp tests the exchange of configuration with other control planes against peers on plain
// generated stubs: a server and a client of MCP over xDS. It holds only tests.
package mcp
