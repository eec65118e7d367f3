// Package analyze finds what is wrong between the objects of a whole configuration: references that lead nowhere,
// and objects that have no effect because another one comes first.
//
// [Run] looks at one push.Context and returns [Finding]s. Each has a [Code]; those with IST are Istio's and mean the
// same as there, those with ASH are Ashore's own. [Codes] lists them all. [Offline] is for configuration that is read
// from files alone: what a registry could supply becomes information. [Background] runs the analysis after changes.
//
// A finding changes nothing: proxies are configured by the same context, whatever the analysis finds. Errors are what
// certainly has no effect or fails; warnings are what probably does.
//
// It does not compare selectors with one another: two Gateways, or two Sidecars, conflict when their selectors are
// equal. It does not look at single fields; config.Validate does.
package analyze
