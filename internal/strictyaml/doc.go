// Package strictyaml reads a program's own settings file: YAML, strictly.
//
// What the file says is laid over the defaults that the caller filled in. An unknown setting, a
// setting given twice and a value of the wrong type are errors with file, line and, where a name is
// misspelt, the nearest one that exists. All errors of a file are reported at once.
package strictyaml
