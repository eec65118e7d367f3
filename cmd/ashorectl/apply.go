package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) applyCommand() *cobra.Command {
	var paths []string
	var o admin.StoreOptions
	cmd := &cobra.Command{
		Use:   "apply -f FILE|FOLDER|-",
		Short: "Write configuration to the store, all of it or nothing",
		Example: `  ashorectl apply -f web.yaml --dry-run
  ashorectl apply -f web.yaml --at 41
  render | ashorectl apply -f -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pieces, err := t.pieces(cmd, paths)
			if err != nil {
				return err
			}
			return write(t, cmd, o, pieces, (*admin.Client).Apply)
		},
	}
	filesFlag(cmd, &paths)
	storeFlags(cmd, &o)
	return cmd
}

func (t *tool) deleteCommand() *cobra.Command {
	var paths []string
	var o admin.StoreOptions
	var namespace string
	cmd := &cobra.Command{
		Use:   "delete KIND NAME | delete -f FILE|FOLDER|-",
		Short: "Delete configuration from the store, all of it or nothing",
		Example: `  ashorectl delete virtualservice shop/web
  ashorectl delete vs web -n shop --dry-run
  ashorectl delete -f config/`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 == (len(paths) > 0) {
				return usage(cmd, errors.New("want either an object, KIND NAME, or files with -f"))
			}
			var pieces []admin.Piece
			var err error
			if len(paths) > 0 {
				pieces, err = t.pieces(cmd, paths)
			} else {
				var ref *admin.Ref
				ref, err = objectRef(cmd, args, namespace)
				pieces = []admin.Piece{{Ref: ref}}
			}
			if err != nil {
				return err
			}
			return write(t, cmd, o, pieces, (*admin.Client).Delete)
		},
		ValidArgsFunction: t.kindAndName(true),
	}
	filesFlag(cmd, &paths)
	storeFlags(cmd, &o)
	cmd.Flags().BoolVar(&o.MissingOK, "ignore-not-found", false, "delete those that exist")
	namespaceFlag(cmd, &namespace)
	return cmd
}

func (t *tool) rollbackCommand() *cobra.Command {
	var namespace string
	var o admin.StoreOptions
	cmd := &cobra.Command{
		Use:   "rollback [KIND NAME] REVISION",
		Short: "Restore the store, or one object, as it was at a revision",
		Example: `  ashorectl rollback 41 --dry-run
  ashorectl rollback 41
  ashorectl rollback virtualservice shop/web 38`,
		Args: cobra.MatchAll(cobra.RangeArgs(1, 3), func(_ *cobra.Command, args []string) error {
			if len(args) == 2 {
				return errors.New("the revision is missing")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := admin.RollbackRequest{Revision: args[len(args)-1]}
			if len(args) == 3 {
				var err error
				if r.Ref, err = objectRef(cmd, args[:2], namespace); err != nil {
					return err
				}
			}
			return write(t, cmd, o, r, (*admin.Client).Rollback)
		},
		ValidArgsFunction: t.kindAndName(true),
	}
	storeFlags(cmd, &o)
	namespaceFlag(cmd, &namespace)
	return cmd
}

// storeFlags adds the flags of the commands that write to the store.
func storeFlags(cmd *cobra.Command, o *admin.StoreOptions) {
	cmd.Flags().BoolVar(&o.Preview, "dry-run", false, "write nothing and show the difference; needs the role viewer only")
	cmd.Flags().StringVar(&o.At, "at", "", "refuse if one of the objects was changed after this `revision`")
	cmd.Flags().BoolVar(&o.Force, "force", false, "overwrite concurrent changes: the last writer wins")
}

func namespaceFlag(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", "namespace of the object")
}

// objectRef returns the object of KIND NAME and --namespace.
func objectRef(cmd *cobra.Command, args []string, namespace string) (*admin.Ref, error) {
	if len(args) < 2 {
		return nil, usage(cmd, fmt.Errorf("the name is missing: name the %s, such as shop/web", args[0]))
	}
	namespace, name, err := splitName(args[1], namespace)
	if err != nil {
		return nil, usage(cmd, err)
	}
	if namespace == "" {
		return nil, usage(cmd, fmt.Errorf("the namespace of %q is missing: want NAMESPACE/%s, or -n NAMESPACE", name,
			name))
	}
	return &admin.Ref{Kind: args[0], Namespace: namespace, Name: name}, nil
}

// pieces reads files for the store. If one cannot be read, it prints the problems.
func (t *tool) pieces(cmd *cobra.Command, paths []string) ([]admin.Piece, error) {
	pieces, problems, err := readFiles(cmd, paths)
	switch {
	case err != nil:
		return nil, err
	case feed.Errors(problems) > 0:
		return nil, t.nothingWritten(cmd, problems)
	case len(pieces) == 0:
		return nil, usage(cmd, fmt.Errorf("no file .yaml, .yml or .json in %s", strings.Join(paths, ", ")))
	}
	return pieces, nil
}

func (t *tool) nothingWritten(cmd *cobra.Command, problems []feed.Problem) error {
	if err := t.report(cmd, problems, ""); err != nil && !errors.Is(err, errFound) {
		return err
	}
	return errors.New("nothing was written")
}

// write sends a write to the store and prints its result.
func write[Q any](t *tool, cmd *cobra.Command, o admin.StoreOptions, q Q,
	send func(*admin.Client, context.Context, Q, admin.StoreOptions) (admin.Written, error)) error {
	if o.Force && o.At != "" {
		return usage(cmd, errors.New("--at refuses concurrent changes, and --force overwrites them: want one of the two"))
	}
	done, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.Written, error) {
		return send(c, ctx, q, o)
	})
	const unknown = "all of it was written, or nothing: see \"ashorectl history\""
	refused, isRefusal := errors.AsType[*admin.Refusal](err)
	switch {
	case err == nil:
		return t.print(cmd, done, writtenText(done))
	case isRefusal && len(refused.Problems) > 0:
		return t.nothingWritten(cmd, refused.Problems)
	case isRefusal && len(refused.Conflicts) > 0:
		return t.printConflicts(cmd, refused.Conflicts)
	case o.Preview:
		return err
	case cmd.Context().Err() != nil:
		return errors.New("interrupted: " + unknown)
	case errors.Is(err, admin.ErrSilent), errors.Is(err, admin.ErrEnded):
		return fmt.Errorf("%w; %s", err, unknown)
	}
	return err
}

func (t *tool) printConflicts(cmd *cobra.Command, list []admin.Conflict) error {
	text := ""
	for _, c := range list {
		text += fmt.Sprintf("CONFLICT %s: changed at revision %s, %s, by %s\n", c.Ref, c.Revision, local(c.When), c.Who)
	}
	if err := t.print(cmd, list, text); err != nil {
		return err
	}
	return errors.New("nothing was written, because the objects have changed: " +
		"see \"ashorectl history KIND NAME --diff\" and --dry-run, and write again")
}

// writtenText describes what was written, or what --dry-run would write.
func writtenText(done admin.Written) string {
	var warnings []string
	for _, p := range done.Warnings {
		if p.Severity == feed.Warning {
			warnings = append(warnings, problemText(p, ""))
		}
	}
	var b strings.Builder
	n, noted := map[string]int{}, map[string]bool{}
	for _, c := range done.Changes {
		n[c.Action]++
		if c.Difference != "" {
			b.WriteString(c.Difference)
		} else {
			fmt.Fprintf(&b, "%s %s\n", c.Ref, c.Action)
		}
		if c.Note != "" && !noted[c.Note] {
			noted[c.Note] = true
			fmt.Fprintf(&b, "  note: %s\n", c.Note)
		}
	}
	switch counts := countText(n); {
	case counts == "":
		fmt.Fprintf(&b, "nothing to change at revision %s\n", done.Revision)
	case n[admin.Created]+n[admin.Changed]+n[admin.Deleted] == 0:
		fmt.Fprintf(&b, "nothing to change at revision %s: %s\n", done.Revision, counts)
	case done.Preview:
		fmt.Fprintf(&b, "nothing was written (--dry-run); compared with revision %[1]s: %[2]s. "+
			"Use --at %[1]s to write this\n", done.Revision, counts)
	default:
		fmt.Fprintf(&b, "revision %s: %s\n", done.Revision, counts)
	}
	return sections(append(warnings, b.String())...)
}

// countText returns "1 created, 2 changed".
func countText(n map[string]int) string {
	var out []string
	for _, a := range []string{admin.Created, admin.Changed, admin.Deleted, admin.Unchanged, admin.Missing} {
		if n[a] > 0 {
			out = append(out, fmt.Sprintf("%d %s", n[a], a))
		}
	}
	return strings.Join(out, ", ")
}
