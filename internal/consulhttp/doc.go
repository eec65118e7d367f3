// Package consulhttp connects to Consul's HTTP API.
//
// New returns a transport that reads the ACL token and the TLS files for each use, limits
// connections and responses, and ignores the settings of Consul's client library in the
// environment. The package also checks addresses and explains errors. It knows nothing about what
// is requested.
package consulhttp
