// Package memo remembers the results of pure functions under their whole input.
//
// A result lives exactly as long as somebody uses it: the memo itself holds it weakly, so there is
// no capacity to tune and nothing to invalidate. The input is comparable and is the function's only
// argument, so a forgotten dependency does not compile.
package memo
