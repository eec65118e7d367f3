// Package config is what operators write: Istio's configuration API as objects.
//
// An Object is one resource, read from YAML or JSON by Parse, checked by Validate and immutable
// from then on. Kinds is the one table of all kinds: their names, versions and protobufs, and
// whether Ashore puts them to work. Source and Store are where objects come from and live.
//
// Nothing is accepted and ignored: a kind, field or mode that Ashore does not carry out yet is an
// error that says so; and so is a field that protects and is written with nothing in it. ParseMesh
// reads the settings of the whole mesh in the same way.
//
// The package does no I/O and knows no Envoy.
package config
