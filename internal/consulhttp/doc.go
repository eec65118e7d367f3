// Package consulhttp is the way to Consul's HTTP interface for all that ask it: one transport with
// the ACL token and the files of TLS as they are at the time, bounds, and nothing of what the
// environment of the process suggests to Consul's own library. It does not know what is asked.
package consulhttp
