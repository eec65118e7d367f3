// Package completion makes the completion command of cobra return an error for an unknown shell.
// Without it, the command prints its help and succeeds.
package completion
