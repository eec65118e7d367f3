// Package listener makes the listeners of sidecars and gateways, with their filter chains.
//
// Layouts say which listeners there are (package layout). What judges requests and connections is
// named here and made by package access.
package listener
