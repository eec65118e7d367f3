// Package consulhttp provides the HTTP transport for Consul's API. It adds the ACL token, reloads
// token and TLS files, limits response sizes, and ignores CONSUL_* environment variables.
package consulhttp
