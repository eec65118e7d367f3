package strictyaml

import (
	"fmt"
	"slices"
	"strings"
)

// suggestion is "; did you mean X?", or the list of known names when none is near.
func suggestion(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; known here: " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
}

// Nearest is the name of known that name most likely stands for: up to a third of its letters differ, or
// one of a short name. Empty when there is none.
func Nearest(name string, known []string) string {
	best, least := "", min(len(name), 1+max(1, len(name)/3))
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of letters to insert, remove, replace or swap with their neighbour to make a
// into b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
