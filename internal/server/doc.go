// Package server builds all parts of ashored, runs them and shuts them down.
//
// New opens the state folder, the listeners and the store, and builds every part in the order in
// which they need each other. Run runs them: the first error stops all. What was opened is closed in
// reverse order. A reload of the settings ends a Server and starts another one.
package server
