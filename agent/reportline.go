package agent

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
)

// linkLine is the line about the connection to the control planes.
const linkLine = "control plane"

// What to do about a control plane that answers, and refuses. A line that is pasted beside an agent that runs joins nobody anew.
const (
	todoNotAccepted = "the control plane does not accept this workload: see \"ashorectl workload list\" and \"ashorectl audit tail\" there, and restore it or join again"
	todoRefused     = "correct what the control plane's answer names, in this agent's settings or in the mesh's configuration: " +
		"until then this workload gets no configuration, policies or revocations"
	todoJoin     = "join again: stop the agent, where it runs, and then paste here a new line of \"ashorectl join-token create\", which starts it anew"
	todoReplaced = "give this machine a name of its own, or take the place back: stop the agent, and paste here a new line of \"ashorectl join-token create\" with --name NAME, or with --replace"
	todoUnknown  = todoJoin + "; or, if this workload joined at another control plane that is still there, name under xds.addresses only that one and those that share its records"
)

// acceptTodo is what to do for a workload that control planes do not accept, by their message.
func acceptTodo(trouble string) string {
	switch {
	case strings.Contains(trouble, "another machine joined under the name"):
		return todoReplaced
	case unknownThere(trouble):
		return todoUnknown
	}
	return todoNotAccepted
}

// unknownThere says that a control plane refuses a workload that joined at another one.
func unknownThere(trouble string) bool {
	return strings.Contains(trouble, "does not share its records")
}

// refusedTodo is what helps against a refusal to renew.
func refusedTodo(trouble error) string {
	r, _ := errors.AsType[*RefusedError](trouble)
	switch {
	case r.Code == codes.Unauthenticated || r.Code == codes.PermissionDenied:
		return acceptTodo(r.Text)
	case r.Todo != "":
		return r.Todo
	}
	return "see \"ashorectl audit tail\" at the control plane"
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

// portTodo is what to do about an Envoy that cannot open a port; empty: that is not its trouble.
func portTodo(trouble string) string {
	found := regexp.MustCompile(`cannot bind '([^']+)': Address already in use`).FindAllStringSubmatch(trouble, -1)
	var ports []string
	for _, f := range found {
		if !slices.Contains(ports, f[1]) {
			ports = append(ports, f[1])
		}
	}
	if len(ports) == 0 {
		return ""
	}
	return fmt.Sprintf("end the program that has %s (\"ss -ltnp\" shows it) and restart this agent, or choose another port", strings.Join(ports, ", "))
}
