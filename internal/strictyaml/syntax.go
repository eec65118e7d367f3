package strictyaml

import (
	"bytes"
	"fmt"
	"strings"
)

// SyntaxError returns the line of an error of the YAML library ("yaml: line 3: …") in data, or 1,
// and a text for operators. The text quotes nothing of data, which may be any file.
func SyntaxError(data []byte, err error) (line int, text string) {
	text, line = strings.TrimPrefix(err.Error(), "yaml: "), 1
	if n, scanErr := fmt.Sscanf(text, "line %d:", &line); n == 1 && scanErr == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	switch {
	case tabIndented(data, line):
		return line, "a tab where YAML wants spaces: replace it with spaces"
	case strings.HasSuffix(text, "<document start>"):
		return line, "a second document begins near this line: write --- before it"
	case strings.HasPrefix(text, "unknown anchor"):
		text = "an alias (*name) has no anchor (&name) before it"
	}
	return line, "not valid YAML near this line: " + strings.TrimSpace(strings.ReplaceAll(text, "\n", " "))
}

// tabIndented says that a tab is among the blanks at the beginning of a line.
func tabIndented(data []byte, line int) bool {
	for l := range bytes.Lines(data) {
		if line--; line == 0 {
			return bytes.ContainsRune(l[:len(l)-len(bytes.TrimLeft(l, " \t"))], '\t')
		}
	}
	return false
}
