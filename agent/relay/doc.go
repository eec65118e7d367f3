// Package relay connects Envoy to the control plane. It passes the frames of incremental ADS on as
// bytes, and reads only their envelopes.
//
// A Relay has at most one link: a verified connection to one control plane. It carries two kinds of
// streams:
//
//   - the control stream of the agent itself: registration, health, and the types that the agent
//     uses (roots, probe, name table). A workload whose Envoy crashes stays registered.
//   - one stream for each stream of Envoy (a session).
//
// The cache has what Envoy acknowledged, in memory and in one file. While no control plane can be
// reached, the cache answers Envoy. When a link ends or begins, the sessions end. Envoy opens new
// streams and claims the versions that it has, so that the control plane sends only differences.
package relay
