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
		Short: "Write configuration to the store, all or nothing",
		Long: `apply writes the objects of files to the store, as one revision. If one object is invalid, nothing is written, and
the problems are shown with file, line and field. Unchanged objects are skipped.

--dry-run shows the difference and a revision. With --at REVISION, apply writes only if nobody changed these objects
since. Otherwise objects are compared when the files arrive, and with --force not at all.

If another source defines an object too, apply says which one is active. It needs the role operator.`,
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
