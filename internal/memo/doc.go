// Package memo caches the results of pure functions by their whole input.
//
// A result stays cached as long as it is in use. The cache holds weak pointers, so there is no
// capacity to tune and nothing to invalidate. The input is comparable and is the function's only
// argument, so a forgotten dependency does not compile.
package memo
