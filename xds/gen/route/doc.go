// Package route makes the route configurations of sidecars and gateways from VirtualServices.
//
// A route configuration is put together from encoded virtual hosts, and those from encoded routes.
// Each part is remembered by what it is made of, so that a changed VirtualService costs the virtual
// hosts that it governs.
package route
