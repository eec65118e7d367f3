// Package strictyaml reads a program's own settings file: YAML, strictly.
//
// Values in the file replace the defaults of the caller. An unknown setting, a
// setting given twice and a value of the wrong type are errors with file, line and, where a name is
// misspelt, the nearest known one. All errors of a file are reported at once.
package strictyaml
