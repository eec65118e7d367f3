// Package outages tests ashored with every kind of source at once (files, the store, a real Consul,
// servers of both protocols of MCP) while real Envoys call one another by the hosts of each. Each
// source is taken away in turn, in each way in which that happens, and ashored is started anew
// meanwhile: not one call may fail, and everybody is told what is wrong and since when. It holds
// nothing but tests.
package outages
