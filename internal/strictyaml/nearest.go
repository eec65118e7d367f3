package strictyaml

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/nearest"
)

// suggestion returns "; did you mean X?", or the list of known names if none is similar.
func suggestion(name string, known []string) string {
	if near := nearest.Name(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; known here: " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
}
