// Package fence holds the rules about who may import what and what the pure middle may contain. It
// has no code, only a test that reads the sources of the module.
//
// Arrows point down: a package imports packages of lower levels only. Packages on one level do not
// import one another; where two must meet, the user of the thing declares an interface and a
// program connects them. Test files may import anything; packages whose name ends in "test" are for
// test files alone.
package fence
