package config

import (
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// beyond are problems for which MaxProblems leaves no room: the first one, and after it the first
// error where that is another.
type beyond []Problem

// lacks says that a problem without room is to be noted.
func (b beyond) lacks(p Problem) bool {
	return len(b) == 0 || p.Severity == feed.Error && b[len(b)-1].Severity != feed.Error
}

// among is a list of MaxProblems problems of a file, with one more that says that there are others.
// That is an error when one of these is: the first such takes the place of the last warning, so
// that what is refused is told with why.
func (b beyond) among(told []Problem) []Problem {
	if len(b) == 0 {
		return told
	}
	first, last := b[0], b[len(b)-1]
	if i := lastWarning(told); i >= 0 && last.Severity == feed.Error {
		told[i] = last
	}
	return append(told, Problem{Severity: last.Severity, File: first.File, Line: first.Line,
		Text: fmt.Sprintf("there are more than %d problems in this file: mend the first ones to see the others",
			MaxProblems)})
}

// lastWarning is the index of the last problem that is no error; -1: there is none.
func lastWarning(list []Problem) int {
	for i, p := range slices.Backward(list) {
		if p.Severity != feed.Error {
			return i
		}
	}
	return -1
}
