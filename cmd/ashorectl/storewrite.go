package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// writeTime is how long a write to the store may take, unless --timeout says it.
const writeTime = 4 * time.Minute

// storeFlags adds the flags of all that writes to the store.
func storeFlags(cmd *cobra.Command, o *admin.StoreOptions) {
	cmd.Flags().BoolVar(&o.Preview, "dry-run", false,
		"only show the difference; the role viewer is enough")
	cmd.Flags().StringVar(&o.At, "at", "",
		"refuse when one of the objects was changed after this `revision`, such as the one that --dry-run printed")
	cmd.Flags().BoolVar(&o.Force, "force", false, "ignore conflicts: the last writer wins")
	must(cmd.RegisterFlagCompletionFunc("at", cobra.NoFileCompletions))
}

// patient has ashored take longer than for a question, unless --timeout says how long.
func (t *tool) patient(cmd *cobra.Command, d time.Duration) {
	if !cmd.Flags().Changed("timeout") {
		t.timeout = d
	}
}

// write asks ashored to write and shows what it did.
func (t *tool) write(cmd *cobra.Command, o admin.StoreOptions,
	question func(*admin.Client, context.Context) (admin.Written, error)) error {
	if o.Force && o.At != "" {
		return usage(cmd, errors.New("--at refuses what others have changed, and --force writes over it: name one of the two"))
	}
	t.patient(cmd, writeTime)
	c, err := t.client()
	if err != nil {
		return err
	}
	done, err := question(c, cmd.Context())
	var refused *admin.Refusal
	switch {
	case errors.As(err, &refused):
		return t.refused(cmd, refused)
	case err != nil:
		return blamed(cmd, uncertain(cmd.Context(), o, err))
	}
	return t.output.write(cmd.OutOrStdout(), done, func(w io.Writer) error { return writtenText(w, done) })
}

// uncertain adds to an error after which nobody here knows whether something was written how to
// find out.
func uncertain(ctx context.Context, o admin.StoreOptions, err error) error {
	const find = "all of it was written, or nothing: \"ashorectl history\" tells which"
	switch {
	case o.Preview:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %s", find)
	case errors.Is(err, admin.ErrSilent), errors.Is(err, admin.ErrEnded):
		return fmt.Errorf("%w; %s", err, find)
	}
	return err
}

// refused shows why nothing was written.
func (t *tool) refused(cmd *cobra.Command, r *admin.Refusal) error {
	w := cmd.OutOrStdout()
	if len(r.Problems) > 0 {
		if err := t.report(w, r.Problems, ""); err != nil && !errors.Is(err, errFound) {
			return err
		}
		return errors.New("nothing was written")
	}
	err := t.output.write(w, r.Conflicts, func(w io.Writer) error {
		for _, c := range r.Conflicts {
			if _, err := fmt.Fprintf(w, "CONFLICT %s: changed at revision %s, %s, by %s\n", c.Ref, c.Revision,
				c.When.Local().Format(time.DateTime), orDash(c.Who)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.New("nothing was written: others have changed these objects. \"ashorectl history KIND NAME --diff\" shows how; look at the difference with --dry-run and write again, or write over it with --force")
}

// writtenText is what was written, for people.
func writtenText(w io.Writer, done admin.Written) error {
	var b strings.Builder
	for _, p := range done.Warnings {
		if p.Severity == feed.Warning {
			b.WriteString(paragraph(p))
		}
	}
	n := map[string]int{}
	notes := map[string]int{}
	for _, c := range done.Changes {
		n[c.Action]++
		if c.Difference != "" {
			b.WriteString(c.Difference)
		} else {
			fmt.Fprintf(&b, "%s %s\n", c.Ref, c.Action)
		}
		if c.Note != "" {
			if notes[c.Note]++; notes[c.Note] == 1 { // one that holds for all is told once
				fmt.Fprintf(&b, "  note: %s\n", c.Note)
			}
		}
	}
	b.WriteString(summary(done, n))
	_, err := io.WriteString(w, b.String())
	return err
}

// summary is the last line.
func summary(done admin.Written, n map[string]int) string {
	counts := countText(n)
	changes := n[admin.Created] + n[admin.Changed] + n[admin.Deleted]
	switch {
	case counts == "":
		return fmt.Sprintf("nothing to change at revision %s: the store holds just that\n", done.Revision)
	case changes == 0:
		return fmt.Sprintf("nothing to change at revision %s: %s\n", done.Revision, counts)
	case done.Preview:
		return fmt.Sprintf("nothing was written (--dry-run). At revision %s it would be: %s. \"--at %s\" writes just this, or nothing when others were faster\n", done.Revision, counts, done.Revision)
	}
	return fmt.Sprintf("revision %s: %s\n", done.Revision, counts)
}

// countText is "1 created, 2 changed".
func countText(n map[string]int) string {
	var out []string
	for _, a := range []string{admin.Created, admin.Changed, admin.Deleted, admin.Unchanged, admin.Missing} {
		if n[a] > 0 {
			out = append(out, fmt.Sprintf("%d %s", n[a], a))
		}
	}
	return strings.Join(out, ", ")
}
