// Package identity tests what a mesh with identities promises: workloads join by a line that a user
// pastes, real Envoys speak mutual TLS, and what is renewed, rotated, revoked, killed or damaged
// does what it should to the traffic.
package identity
