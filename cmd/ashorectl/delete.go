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

func (t *tool) deleteCommand() *cobra.Command {
	var files storeFiles
	var o admin.StoreOptions
	var namespace string
	cmd := &cobra.Command{
		Use:   "delete KIND NAME -n NAMESPACE | delete -f FILE|FOLDER|-",
		Short: "Delete configuration from the store, all or nothing",
		Long: `delete removes an object from the store, or with -f all objects that files name, as one revision. NAME may be
NAMESPACE/NAME. If the store lacks one of the objects, nothing is deleted, except with --ignore-not-found.

Objects of files in a configuration folder are deleted there. It needs the role operator.`,
		Example: "  ashorectl delete virtualservice shop/web\n  ashorectl delete vs web -n shop --dry-run\n  ashorectl delete -R -f config/",
		Args:    atMost(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			pieces, err := t.toDelete(cmd, args, namespace, &files)
			if err != nil {
				return err
			}
			return t.write(cmd, o, func(c *admin.Client, ctx context.Context) (admin.Written, error) {
				return c.Delete(ctx, each(pieces), o)
			})
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return t.completeStored(cmd.Context(), args, namespace)
		},
	}
	files.flags(cmd)
	storeFlags(cmd, &o)
	cmd.Flags().BoolVar(&o.MissingOK, "ignore-not-found", false, "skip objects that do not exist")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the object")
	must(cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions))
	return cmd
}

// toDelete is what a command line names.
func (t *tool) toDelete(cmd *cobra.Command, args []string, namespace string, files *storeFiles) ([]admin.Piece, error) {
	if len(args) == 0 {
		if len(files.paths) == 0 {
			return nil, usage(cmd, errors.New("name an object, such as \"ashorectl delete virtualservice shop/web\", or files with -f"))
		}
		pieces, problems, err := files.read(cmd)
		if err == nil && feed.Errors(problems) > 0 {
			err = t.unread(cmd, problems)
		}
		return pieces, err
	}
	if len(files.paths) > 0 {
		return nil, usage(cmd, errors.New("name an object or files, not both"))
	}
	ref, err := oneObject(cmd, args, namespace)
	return []admin.Piece{{Ref: ref}}, err
}

// oneObject is the object that KIND NAME and -n name.
func oneObject(cmd *cobra.Command, args []string, namespace string) (*admin.Ref, error) {
	if len(args) < 2 {
		return nil, usage(cmd, fmt.Errorf("NAME is missing: name the %s, such as shop/web", args[0]))
	}
	namespace, name, err := splitName(args[1], namespace)
	if err != nil {
		return nil, usage(cmd, err)
	}
	if namespace == "" {
		return nil, usage(cmd, fmt.Errorf("the namespace of %q is missing: write NAMESPACE/%s, or -n NAMESPACE", name,
			name))
	}
	return &admin.Ref{Kind: args[0], Namespace: namespace, Name: name}, nil
}

// splitName is a name that may be NAMESPACE/NAME, beside the namespace of -n.
func splitName(name, namespace string) (string, string, error) {
	ns, n, both := strings.Cut(name, "/")
	switch {
	case !both:
		return namespace, name, nil
	case namespace != "" && namespace != ns:
		return "", "", fmt.Errorf("namespace %q in the name, and %q by -n", ns, namespace)
	}
	return ns, n, nil
}

// completeStored offers kinds, and after one the names of its objects in the store.
func (t *tool) completeStored(ctx context.Context, args []string, namespace string) ([]string,
	cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return kinds(), cobra.ShellCompDirectiveNoFileComp
	case 1:
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offer(ctx, t, func(c *admin.Client, ctx context.Context) ([]admin.Object, error) {
		return c.Stored(ctx, args[0], namespace, "")
	}, func(found []admin.Object) []string { return objectNames(found, namespace) })
}
