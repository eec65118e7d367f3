// Package goldentest builds the scope of a proxy from configuration for tests, and compares
// generated resources with golden files.
//
// "make golden" runs the tests with the flag -update, which rewrites the files. A package that uses
// it defines the flag in its TestMain.
package goldentest
