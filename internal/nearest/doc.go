// Package nearest finds the known name that is most similar to an unknown one, for hints in
// messages.
package nearest
