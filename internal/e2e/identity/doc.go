// Package identity tests a mesh with identities: workloads join with the printed command, and real
// Envoys use mutual TLS. The tests renew, rotate, revoke, kill and damage, and check the effect on
// traffic.
package identity
