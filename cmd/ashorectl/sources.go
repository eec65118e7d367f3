package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) sourcesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sources",
		Short: "Show the sources of configuration and services",
		Example: `  ashorectl sources
  ashorectl sources -o json | jq '.[] | select(.error)'
  ashorectl sources accept-removals files`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := ask(t, cmd, admin.CallStatus, admin.None{})
			if err != nil {
				return err
			}
			return t.print(cmd, s.Sources, sourcesText(s.Sources))
		},
	}
	cmd.AddCommand(t.acceptRemovalsCommand())
	return cmd
}

func (t *tool) acceptRemovalsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "accept-removals SOURCE",
		Short: "Remove what is retained although a source does not have it any more",
		Example: `  ashorectl sources accept-removals files
  ashorectl sources accept-removals files:team-b
  ashorectl sources accept-removals mcp:central -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(t, cmd, admin.CallAcceptRemovals, admin.AcceptRequest{Source: args[0]}, func(a admin.Accepted) string {
				return fmt.Sprintf("%s: removed %s\n", a.Source, count(a.Removed, "item"))
			})
		},
	}
}

func sourcesText(all []feed.SourceStatus) string {
	tb := newTable("SOURCE", "STATE", "ITEMS", "RETAINED", "PROBLEMS", "LAST CHANGE", "FOLDER")
	for _, s := range all {
		state, _ := sourceState(s)
		tb.add(s.Name, state, s.Items, s.Retained, s.Problems, age(s.LastUpdate), s.Folder)
	}
	return tb.String() + sourceReasons(all)
}

// sourceReasons has a line for each source that is not in the state "ok".
func sourceReasons(all []feed.SourceStatus) string {
	var b strings.Builder
	for _, s := range all {
		if state, reason := sourceState(s); state != "ok" {
			fmt.Fprintf(&b, "%s: %s\n", s.Name, reason)
		}
	}
	return b.String()
}

// sourceState returns the state of a source, as docs/ashorectl.md lists them, and its reason.
func sourceState(s feed.SourceStatus) (state, reason string) {
	const problems = `: see "ashorectl problems"`
	switch {
	case s.Reading > 0:
		return "reading, " + count(s.Reading, "file"), "its files are being read"
	case s.Error != "":
		if time.Since(s.ErrorSince) < time.Second {
			return "down", s.Error
		}
		return "down", fmt.Sprintf("%s, for %s", s.Error, age(s.ErrorSince))
	case !s.Synced && s.Items == 0:
		return "not read", "it has not been read yet"
	case !s.Synced:
		return "stale", "it has not been read since the start; its last known content is active"
	case s.Stale > 0:
		return "stale", "an older version of " + count(s.Stale, "part") + " is active" + problems
	case s.Retained > 0:
		return "retained", "retains " + count(s.Retained, "item") + " that it no longer has" + problems
	default:
		return "ok", ""
	}
}
