// Package mcp exchanges configuration with other control planes by the Mesh Configuration Protocol, in both its forms: over
// xDS, as Istio speaks it today (configSources: xds://…), and the older ResourceSource and ResourceSink services.
//
// A Source is a config.Source whose origin is a server of either form, or with ResourceSink one that calls us. Every
// object passes config.Accept; what does not is named in a refusal, and its last good version stays. A session is the
// protocol on one stream and a content is what a server said and what of it counts; both are without I/O.
//
// A Catalog makes of our own objects (push.Told) the resources that others are told: package xds serves them on discovery streams,
// a Server by the older protocol.
//
// The package keeps nothing over a restart (internal/lastgood does), and applies no MeshConfig: that is for the settings of
// this control plane.
package mcp
