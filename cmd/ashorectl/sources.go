package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) sourcesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sources",
		Short: "Show the sources of configuration and services, and their state",
		Long: `sources lists the sources of configuration and services, in order of precedence. "ashorectl problems" has details.

  ok          it is read, and changes are followed
  not read    nothing is known yet; "waits" means that no proxy is served before it is read
  down        it cannot be reached, and its last known good content is active
  stale       a part of it is invalid, and its last good version is active
  retained    objects that it no longer supplies are still active
  reading     N files are still to be read

ITEMS counts what it supplies, RETAINED what is still active although it was removed. "serviceentry" are the services
that configuration declares.`,
		Example: "  ashorectl sources\n  ashorectl sources -o json | jq '.[] | select(.error)'",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := ask(t, cmd, (*admin.Client).Status)
			if err != nil {
				return err
			}
			return t.output.write(cmd.OutOrStdout(), s.Sources,
				func(w io.Writer) error { return sourcesTable(w, s.Sources, s.Ready, time.Now()) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.AddCommand(t.acceptRemovalsCommand())
	return cmd
}

func (t *tool) acceptRemovalsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "accept-removals SOURCE",
		Short: "Remove objects that a source no longer supplies",
		Long: `When a source loses all or most of its objects at once, they stay active, in case that was a mistake, such as a disk
that is not mounted. accept-removals says that it was not. What is active because a source is down or being read is not removed. SOURCE is a
name that "ashorectl sources" shows. It needs the role operator.`,
		Example: "  ashorectl sources accept-removals files",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.Accepted, error) {
				return c.AcceptRemovals(ctx, args[0])
			})
			if err != nil {
				return err
			}
			return t.output.write(cmd.OutOrStdout(), out, func(w io.Writer) error {
				did := "removed " + count(out.Removed, "item")
				if out.Removed == 0 {
					did = "it has no retained items, so there was nothing to remove"
				}
				_, err := fmt.Fprintf(w, "%s: %s\n", out.Source, did)
				return err
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

// sourcesTable is the output for people; ready means that proxies are served.
func sourcesTable(w io.Writer, all []feed.SourceStatus, ready bool, now time.Time) error {
	rows := make([][]string, 0, len(all))
	for _, s := range all {
		row := []string{sourceTitle(s), sourceState(s, ready), strconv.Itoa(s.Items), strconv.Itoa(s.Retained),
			strconv.Itoa(s.Problems), "-", "-"}
		if !s.LastUpdate.IsZero() {
			row[5] = ago(now, s.LastUpdate)
		}
		if s.Setting != "" {
			row[6] = s.Name
		}
		rows = append(rows, row)
	}
	if err := columns(w, []string{"SOURCE", "STATE", "ITEMS", "RETAINED", "PROBLEMS", "LAST CHANGE", "ORIGIN"},
		rows); err != nil {
		return err
	}
	return sources(w, all, now)
}

// sourceTitle is the name in the settings, or else the source's own.
func sourceTitle(s feed.SourceStatus) string { return cmp.Or(s.Setting, s.Name) }

// sourceState is the state of a source in a word.
func sourceState(s feed.SourceStatus, ready bool) string {
	switch {
	case s.Reading > 0:
		return fmt.Sprintf("reading, %d files", s.Reading)
	case !s.Synced && s.Required && !ready:
		return "not read, waits"
	case !s.Synced && s.Items == 0:
		return "not read"
	case s.Error != "":
		return "down"
	case s.Stale > 0 || !s.Synced:
		return "stale"
	case s.Retained > 0:
		return "retained"
	default:
		return "ok"
	}
}
