// Package crd reads Istio's objects from a cluster of Kubernetes, and writes back what became of
// them.
//
// A Source is a config.Source. It watches each kind that the cluster serves, and validates objects
// as files are. Each object is a group. Kinds that are not installed are looked up again.
//
// StatusWriter writes the condition Reconciled into the status of objects. Webhook keeps the
// ValidatingWebhookConfiguration "ashore" correct. Only the leader of a cluster runs these two.
//
// A kind that alone cannot be read keeps the objects that were known before. At the start, the source
// is down while it cannot read a kind that protects (config.KindInfo.Protects).
//
// Limit: a kind that is installed later is found within 30 s.
package crd
