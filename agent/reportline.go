package agent

import "strings"

// linkLine is the line about the connection to the control planes.
const linkLine = "control plane"

// unknownThere reports whether a control plane refuses a workload that joined at another one.
func unknownThere(trouble string) bool {
	return strings.Contains(trouble, "does not share its records")
}

// oneLine makes one line of a text of several.
func oneLine(text string) string {
	var out []string
	for part := range strings.Lines(text) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return strings.Join(out, "; ")
}
