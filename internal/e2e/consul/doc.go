// Package consul tests registry/consul against real Consul agents: registrations, health,
// maintenance, tokens, outages, restorations, storms, limits.
package consul
