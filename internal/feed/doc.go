// Package feed is the contract between what supplies (files, stores, registries) and what merges.
//
// A Source replaces whole groups and never sends a difference, so nothing can be lost or reordered:
// a group is what the source re-reads as one (a file, a Consul service). Problems travel beside the
// items that they are about. Group and Merge keep the latest content of every group.
//
// The package knows neither configuration nor services.
package feed
