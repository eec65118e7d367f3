// Package webhook has a real ashored validate configuration over HTTPS: as an API server asks, and
// as a pipeline does.
package webhook
