// Package outages tests ashored with all kinds of sources (files, the store, a real Consul, MCP
// servers). Meanwhile real Envoys call one another by the hosts of each. Each source fails in turn,
// in each way that occurs, and ashored is restarted meanwhile. No call may fail, and problems and
// status report the outage. The package has only tests.
package outages
