// Package lastgood keeps the last complete content of sources over restarts: what a source said stands in when ashored
// starts while the source's origin is away.
//
// Source wraps any feed.Source. The source itself says only what it knows, and need not keep anything. Writer writes behind
// the back of who gives it contents, so that a slow or full disk delays nothing.
package lastgood
