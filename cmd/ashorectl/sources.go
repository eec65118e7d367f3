package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) sourcesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sources",
		Short: "Show where configuration and services come from, and how old it is",
		Long: `sources shows every source of configuration and services, the deciding one first:

  ok          it has been read, and is followed
  not read    nothing is known of it yet; "waits" says that no proxy is served before it is known
  stale       older content than there is, or may be, is in use, as old as AGE says
  reading     files are being read, N are left; they take effect together

ITEMS counts what it supplies, PROBLEMS what is wrong with that, LAG is how long its last change took to get
here from ORIGIN, where it reads. "serviceentry" are the services that are made of configuration, from whatever
source that is. Below the table is why a source, or the oldest part of it, is out of reach, and the last
error of a source that is well again.`,
		Example: "  ashorectl sources\n  ashorectl sources -o json | jq '.[] | select(.error)'",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := ask(t, cmd, (*admin.Client).Status)
			if err != nil {
				return err
			}
			return t.output.write(cmd.OutOrStdout(), s.Sources, func(w io.Writer) error { return sourcesTable(w, s.Sources, s.Ready, time.Now()) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

// sourcesTable is the answer for people; ready says that proxies are served.
func sourcesTable(w io.Writer, all []feed.SourceStatus, ready bool, now time.Time) error {
	rows := make([][]string, 0, len(all))
	var errs, over []feed.SourceStatus
	for _, s := range all {
		row := []string{s.Title(), sourceState(s, ready), strconv.Itoa(s.Items), strconv.Itoa(s.Problems), "-", "-", "-", "-"}
		if of := s.StaleSince(); !of.IsZero() {
			row[4] = ago(now, of)
		}
		if !s.Last.IsZero() {
			row[5] = ago(now, s.Last)
		}
		if s.Lag > 0 {
			row[6] = lagText(s.Lag)
		}
		if s.Setting != "" {
			row[7] = s.Name
		}
		rows = append(rows, row)
		if s.Error != "" || s.Stale > 0 {
			errs = append(errs, s)
		} else if s.LastError != "" {
			over = append(over, s)
		}
	}
	if err := columns(w, []string{"SOURCE", "STATE", "ITEMS", "PROBLEMS", "AGE", "LAST CHANGE", "LAG", "ORIGIN"}, rows); err != nil {
		return err
	}
	if err := sources(w, errs, now); err != nil {
		return err
	}
	for _, s := range over {
		if _, err := fmt.Fprintf(w, "%s: well again for %s; before: %s\n", s.Title(), ago(now, s.LastErrorAt), s.LastError); err != nil {
			return err
		}
	}
	return nil
}

// sourceState is how a source is, in a word.
func sourceState(s feed.SourceStatus, ready bool) string {
	switch {
	case s.Reading > 0:
		return fmt.Sprintf("reading, %d files", s.Reading)
	case !s.Synced && s.Required && !ready:
		return "not read, waits"
	case !s.Synced:
		return "not read"
	case s.Stale > 0 || s.Error != "":
		return "stale"
	default:
		return "ok"
	}
}

// lagText is how long a change took, to the millisecond, and to the microsecond below one.
func lagText(d time.Duration) string {
	if d < time.Millisecond {
		return max(d, time.Microsecond).Round(time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
