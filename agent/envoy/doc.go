// Package envoy runs Envoy and asks its admin interface.
//
// A Runner keeps one Envoy running and starts it again when it ends. A Child is a process of this
// one and ends with it; Units are systemd units that outlive it. Units replace an Envoy whose
// program, arguments or bootstrap changed by hot restart: each restart epoch has a unit of its own.
//
// The package does not depend on the content of the configuration.
package envoy
