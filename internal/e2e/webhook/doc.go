// Package webhook tests validation over HTTPS by a real ashored, with requests of API servers and
// of pipelines.
package webhook
