// Package relay connects Envoy to the control plane. It passes the frames of incremental ADS
// on as bytes, and reads only their envelopes.
//
// A Relay has at most one link: a verified connection to one control plane. Two kinds of streams
// run on it:
//
//   - the control stream of the agent itself: registration, health, and the types that the agent
//     uses (roots, probe, name table). A workload whose Envoy crashes stays registered.
//   - one stream for each stream of Envoy (a session).
//
// What Envoy acknowledged is in the cache, in memory and in one file. While no control plane can
// be reached, Envoy is answered from it. When a link comes back, a session subscribes again and
// claims the versions that Envoy has, so that only differences are sent.
//
// A resource that Envoy was sent and did not acknowledge is claimed with an impossible version:
// Envoy may have it or not, so the control plane has to send or remove it again.
package relay
