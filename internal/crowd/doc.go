// Package crowd bounds the connections of strangers: a listener under which so many may be open and no more, and the
// households by which strangers are told apart.
package crowd
