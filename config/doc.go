// Package config is what operators write: Istio's configuration API as objects.
//
// An Object is one resource, read from YAML or JSON by Parse, checked by Validate and immutable
// from then on. Kinds is the one table of all kinds: their names, versions and protobufs, and
// whether Ashore puts them to work. Source and Store are where objects come from and live.
//
// No object is accepted and ignored: a kind, field or mode that Ashore does not implement yet is an
// error, and so is a field that protects something and is empty. ParseMesh reads the settings of the
// whole mesh. There, a field that is not implemented and protects nothing is a warning.
//
// The package does no I/O and knows no Envoy.
package config
