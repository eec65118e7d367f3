// Package settings reads the settings file of ashored.
//
// Config is the file, with a default for each setting. Read lays a file over the defaults, and
// Check validates the result and reports every error with its file and line. docs/settings.md
// describes each setting for operators.
package settings
