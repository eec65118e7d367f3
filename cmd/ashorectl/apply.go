package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) applyCommand() *cobra.Command {
	var paths []string
	w := admin.StoreWrite{Action: admin.Apply}
	cmd := &cobra.Command{
		Use:   "apply -f FILE|FOLDER|-",
		Short: "Write configuration to the store, all of it or nothing",
		Example: `  ashorectl apply -f web.yaml --dry-run
  ashorectl apply -f web.yaml --at 41
  render | ashorectl apply -f -`,
	}
	t.writes(cmd, &w, func(cmd *cobra.Command, _ []string) (err error) {
		w.Pieces, err = t.pieces(cmd, paths)
		return err
	})
	filesFlag(cmd, &paths)
	return cmd
}

func (t *tool) deleteCommand() *cobra.Command {
	var paths []string
	var namespace string
	w := admin.StoreWrite{Action: admin.Delete}
	cmd := &cobra.Command{
		Use:   "delete KIND NAME | delete -f FILE|FOLDER|-",
		Short: "Delete configuration from the store, all of it or nothing",
		Example: `  ashorectl delete virtualservice shop/web
  ashorectl delete vs web -n shop --dry-run
  ashorectl delete -f config/`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: t.kindAndName(true),
	}
	t.writes(cmd, &w, func(cmd *cobra.Command, args []string) (err error) {
		switch {
		case len(args) > 0 == (len(paths) > 0):
			return usage(cmd, errors.New("want either an object, KIND NAME, or files with -f"))
		case len(paths) > 0:
			w.Pieces, err = t.pieces(cmd, paths)
			return err
		}
		ref, err := objectRef(cmd, args, namespace)
		w.Pieces = []admin.Piece{{Ref: ref}}
		return err
	})
	filesFlag(cmd, &paths)
	cmd.Flags().BoolVar(&w.MissingOK, "ignore-not-found", false, "delete those that exist")
	namespaceFlag(cmd, &namespace)
	return cmd
}

func (t *tool) rollbackCommand() *cobra.Command {
	var namespace string
	w := admin.StoreWrite{Action: admin.Rollback}
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
		ValidArgsFunction: t.kindAndName(true),
	}
	t.writes(cmd, &w, func(cmd *cobra.Command, args []string) (err error) {
		w.Revision = args[len(args)-1]
		if len(args) == 3 {
			w.Ref, err = objectRef(cmd, args[:2], namespace)
		}
		return err
	})
	namespaceFlag(cmd, &namespace)
	return cmd
}

// writes makes a command write w to the store, or preview it. fill completes w.
func (t *tool) writes(cmd *cobra.Command, w *admin.StoreWrite, fill func(*cobra.Command, []string) error) {
	var preview bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := fill(cmd, args); err != nil {
			return err
		}
		return t.write(cmd, *w, preview)
	}
	cmd.Flags().BoolVar(&preview, "dry-run", false, "write nothing and show the difference; needs the role viewer only")
	cmd.Flags().StringVar(&w.At, "at", "", "refuse if one of the objects was changed after this `revision`")
}

func namespaceFlag(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", "namespace of the object")
}

// objectRef returns the object of KIND NAME and --namespace.
func objectRef(cmd *cobra.Command, args []string, namespace string) (*admin.Ref, error) {
	if err := checkKind(cmd, args[0]); err != nil {
		return nil, err
	}
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

// write sends a write to the store, or previews it, and prints the result.
func (t *tool) write(cmd *cobra.Command, w admin.StoreWrite, preview bool) error {
	call := admin.CallWrite
	if preview {
		call = admin.CallPreview
	}
	done, err := ask(t, cmd, call, w)
	const unknown = "all of it was written, or nothing: see \"ashorectl history\""
	refused, isRefusal := errors.AsType[*admin.Refusal](err)
	switch {
	case err == nil:
		return t.print(cmd, done, writtenText(done))
	case isRefusal && len(refused.Problems) > 0:
		return t.nothingWritten(cmd, refused.Problems)
	case preview:
		return err
	case cmd.Context().Err() != nil:
		return errors.New("interrupted: " + unknown)
	case errors.Is(err, admin.ErrSilent), errors.Is(err, admin.ErrEnded):
		return fmt.Errorf("%w; %s", err, unknown)
	}
	return err
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
	noted := map[string]bool{}
	for _, c := range done.Changes {
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
	switch counts := countText(done.Changes); {
	case !changesAnything(done.Changes):
		fmt.Fprintf(&b, "nothing to change at revision %s\n", done.Revision)
	case done.Preview:
		fmt.Fprintf(&b, "nothing was written (--dry-run); compared with revision %[1]s: %[2]s. "+
			"Use --at %[1]s to write this\n", done.Revision, counts)
	default:
		fmt.Fprintf(&b, "revision %s: %s\n", done.Revision, counts)
	}
	return sections(append(warnings, b.String())...)
}

func changesAnything(changes []admin.ObjectChange) bool {
	return slices.ContainsFunc(changes, func(c admin.ObjectChange) bool {
		return c.Action != admin.Unchanged && c.Action != admin.Missing
	})
}

// countText returns "1 created, 2 changed".
func countText(changes []admin.ObjectChange) string {
	n := map[string]int{}
	for _, c := range changes {
		n[c.Action]++
	}
	var out []string
	for _, a := range []string{admin.Created, admin.Changed, admin.Deleted, admin.Unchanged, admin.Missing} {
		if n[a] > 0 {
			out = append(out, fmt.Sprintf("%d %s", n[a], a))
		}
	}
	return strings.Join(out, ", ")
}
