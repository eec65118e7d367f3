// Package strictyaml reads a program's own settings file: YAML, strictly.
//
// Values in the file replace the defaults of the caller. An unknown setting, a duplicate and a
// value of the wrong type are errors with file and line. For a misspelt name they have the nearest
// known one. All errors of a file are reported at once.
package strictyaml
