// Package goldentest takes configuration and a described proxy the whole way to the scope that
// resources are made of, and compares what is made with files.
//
// Tests that keep their expectations in files use it: "make golden" runs them with the flag
// -update, which rewrites the files. A package that uses it defines the flag in its TestMain.
// Nothing here is shipped.
package goldentest
