package push

import (
	"fmt"
	"strings"
)

// crossings is empty: package analyze finds conflicts.
type crossings struct{}

func (crossings) look(Inputs, func(place, []finding)) {}

// some is a list for people, cut off where it gets long.
func some(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
