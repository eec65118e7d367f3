package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// object is what operators write of an admin.Object: reading it back gives the same object.
type object struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   admin.Metadata `json:"metadata"`
	Spec       any            `json:"spec"`
}

// list is several objects as one document.
type list struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Items      []object `json:"items"`
}

func (t *tool) getCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show the configuration that is at work, and where it was read",
		Long: `get shows the objects that are at work: not always what a file says now, for a file with an error
keeps its last good content. KIND is a name such as VirtualService, in any case, singular or plural,
or short: vs, dr, gw, se, we, sc. NAME may be NAMESPACE/NAME.

With -o yaml or -o json the objects come out as they can be read back.`,
		Example: "  ashorectl get virtualservice\n  ashorectl get vs web -n shop -o yaml\n  ashorectl get serviceentries -o json",
		Args:    between(1, 2, missingKind),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 2 {
				name = args[1]
				if ns, n, both := strings.Cut(name, "/"); both {
					if namespace != "" && namespace != ns {
						return usage(cmd, fmt.Errorf("namespace %q in the name, and %q by -n", ns, namespace))
					}
					namespace, name = ns, n
				}
			}
			found, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) ([]admin.Object, error) {
				return c.Objects(ctx, args[0], namespace, name)
			})
			if err != nil {
				return err
			}
			return t.objects(cmd.OutOrStdout(), found, len(args) == 2)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return t.completeObjects(cmd.Context(), args, namespace)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only this namespace (default: all)")
	must(cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions))
	return cmd
}

// objects writes what was found; one says that a single name was asked for.
func (t *tool) objects(w io.Writer, found []admin.Object, one bool) error {
	items := make([]object, len(found))
	for i, o := range found {
		items[i] = object{o.APIVersion, o.Kind, o.Metadata, o.Spec}
	}
	var v any = list{"v1", "List", items}
	if one && len(items) == 1 {
		v = items[0]
	}
	return t.output.write(w, v, func(w io.Writer) error { return objectTable(w, found, time.Now()) })
}

func objectTable(w io.Writer, found []admin.Object, now time.Time) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	// what is read from files has no time of its own
	aged := slices.ContainsFunc(found, func(o admin.Object) bool { return !o.Metadata.Created.IsZero() })
	header := []string{"NAMESPACE", "NAME", "READ FROM"}
	if aged {
		header = append(header, "AGE")
	}
	var rows [][]string
	for _, o := range found {
		where := o.Origin.Source
		if o.Origin.File != "" {
			where = filepath.Clean(o.Origin.File)
			if o.Origin.Line > 0 {
				where += fmt.Sprintf(":%d", o.Origin.Line)
			}
		}
		row := []string{o.Metadata.Namespace, o.Metadata.Name, orDash(where)}
		if aged {
			row = append(row, ago(now, o.Metadata.Created))
		}
		rows = append(rows, row)
	}
	return columns(w, header, rows)
}

// completeObjects offers the kinds that are at work, and after one the names of its objects: NAMESPACE/NAME, the
// name alone where the namespace is given.
func (t *tool) completeObjects(ctx context.Context, args []string, namespace string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return kinds(), cobra.ShellCompDirectiveNoFileComp
	case 1:
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offer(ctx, t, func(c *admin.Client, ctx context.Context) ([]admin.Object, error) {
		return c.Objects(ctx, args[0], namespace, "")
	}, func(found []admin.Object) (out []string) {
		for _, o := range found {
			name := o.Metadata.Name
			if namespace == "" {
				name = o.Metadata.Namespace + "/" + name
			}
			out = append(out, name)
		}
		return out
	})
}

// kinds are those that are at work, by the names that people type.
func kinds() []string {
	var out []string
	for _, k := range config.Kinds() {
		if k.AtWork {
			out = append(out, strings.ToLower(string(k.Kind)))
		}
	}
	return slices.Clip(out)
}

func missingKind(*cobra.Command) string {
	return "KIND is missing: name one, such as \"ashorectl get virtualservice\"; there are " + strings.Join(kinds(), ", ")
}
