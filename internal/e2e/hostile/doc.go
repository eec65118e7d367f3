// Package hostile attacks a running mesh from a workload with a valid certificate. It has one
// attack of each kind, with the limit or the refusal that stops it.
package hostile
