package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) applyCommand() *cobra.Command {
	var files storeFiles
	var o admin.StoreOptions
	cmd := &cobra.Command{
		Use:   "apply -f FILE|FOLDER|-",
		Short: "Write configuration to the store: all of it, or nothing",
		Long: `apply writes the objects of files to the store of ashored: all of them, as one revision, or none when one
of them is wrong. What is wrong is told as "ashorectl validate" tells it: file, line and field. An object
that the store has as it is written is left alone. -f takes a file, a folder (with -R the folders below it,
too) or "-", standard input; it may be given several times.

--dry-run writes nothing and shows how each object would change. It prints a revision: "apply --at" with
that one writes what you have seen, or nothing when somebody has changed one of these objects since; who
did is said. Without --at objects are compared as they are when the files arrive, and with --force not at
all.

What a file defines besides the store is said: only one of the two is in use. It needs the role operator,
the audit log tells who wrote, "ashorectl history" shows it and "ashorectl rollback" undoes it.`,
		Example: `  ashorectl apply -f web.yaml --dry-run        see the difference first
  ashorectl apply -f web.yaml --at 41          write just that
  ashorectl apply -R -f config/                a folder with those below it, as one revision
  render | ashorectl apply -f -`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			pieces, problems, err := files.read(cmd)
			if err != nil {
				return err
			}
			if feed.Errors(problems) > 0 {
				return t.unread(cmd, problems)
			}
			return t.write(cmd, o, func(c *admin.Client, ctx context.Context) (admin.Written, error) {
				return c.Apply(ctx, each(pieces), o)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	files.flags(cmd)
	storeFlags(cmd, &o)
	return cmd
}

// unread shows which files cannot be read.
func (t *tool) unread(cmd *cobra.Command, problems []feed.Problem) error {
	if err := t.report(cmd.OutOrStdout(), problems, ""); err != nil && !errors.Is(err, errFound) {
		return err
	}
	return errors.New("nothing was written")
}
