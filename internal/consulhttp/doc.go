// Package consulhttp connects to Consul's HTTP API.
//
// New returns a transport that reads the ACL token and the TLS files for each use, and limits
// connections and responses. It ignores the environment variables of Consul's client library. The
// package also checks addresses and explains errors. It does not depend on what is requested.
package consulhttp
