// Package access makes the filters that control access: authorization (RBAC), tokens (JWT), external
// authorization, and revocation. They are delivered on their own (ECDS), so that a changed policy
// replaces no listener and ends no connection.
//
// Package xds/authz evaluates what is made here for ashorectl authz explain.
package access
