// Package push is the heart: it turns everything that is configured and everything that runs into
// one immutable Context, and a Context into what one proxy may see of it.
//
// Build makes a Context; the previous one only donates what did not change. Classify reduces a proxy
// to its Facets, the few comparable facts that its resources truly depend on; Scope is what proxies of
// those facets see, computed once for all of them. Compare counts what lies between two contexts.
//
// What was in use stays in use until somebody plainly says that it goes: an object that no source has any more is held while
// there is a doubt whether it is meant to go, over starts too. hold.go has the law, and moving.go that of services, which is about
// changes of the list of sources alone.
//
// What others are told is made beside it, of our own sources alone: Told is what would be in use without the foreign ones.
//
// Beside a context stands what is wrong between objects that are right by themselves: those that get in one
// another's way are found by difference after each build, references that lead nowhere when they are asked for.
//
// What policies say of a call is judged by the same facts that proxies enforce them by: Scope.Judge for one proxy,
// Context.Explain for the workloads of a name.
//
// All of it is pure: no clock, I/O, logger or goroutine, except in assembler.go, which owns the one
// goroutine that merges sources and paces builds.
package push
