// Package analyze finds what is wrong between the objects of a whole configuration: references to
// what does not exist, and objects without effect because another one takes precedence.
//
// [Run] analyzes one push.Context and returns [Finding]s. Each has a [Code]. Codes with IST are
// Istio's and mean the same as there. Codes with ASH are Ashore's. docs/analysis.md lists all of
// them. [Offline] is for configuration that is read from files alone: what a registry could supply
// becomes information. [Background] runs the analysis after changes.
//
// A finding changes nothing: proxies are configured by the same context, whatever the analysis
// finds. An error means that something has no effect or fails. A warning means that this is
// likely.
//
// The package does not compare selectors with one another: two Gateways, or two Sidecars, conflict
// if their selectors are equal. It does not check single fields; config.Validate does.
package analyze
