// Package gentest has what tests of the packages below xds/gen share: scopes and services in short
// form, and checks of encoded messages.
package gentest
