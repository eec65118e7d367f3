package main

import (
	"context"
	"errors"
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
	var store, watch bool
	output := namesOrFormat{format: &t.output}
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show active configuration, services and endpoints, and their sources",
		Long: `get shows the active objects of all sources, and where each is defined. KIND is a name such as VirtualService, in
any case, singular or plural, or short: vs, dr, gw, se, we, sc. NAME may be NAMESPACE/NAME. --store shows what the
store has, active or not. -w follows changes: "+" added, "~" changed, "-" removed, "!" unreadable in the store.

"get services" and "get endpoints" show what proxies may call, with health, ports, addresses and source. NAME is
the host then, and -o wide shows more columns.`,
		Example: `  ashorectl get virtualservice
  ashorectl get vs web -n shop -o yaml
  ashorectl get serviceentries --store -o yaml > backup.yaml
  ashorectl get vs -w
  ashorectl get services
  ashorectl get endpoints web.service.consul -w`,
		Args: between(1, 2, missingKind),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := objectQuery{kind: args[0], namespace: namespace, store: store}
			if len(args) == 2 {
				var err error
				if q.namespace, q.name, err = splitName(args[1], namespace); err != nil {
					return usage(cmd, err)
				}
			}
			if endpoints, ok := registryNoun(args[0]); ok {
				v := serviceView{query: admin.ServiceQuery{Namespace: q.namespace, Host: q.name, Endpoints: endpoints,
					Watch: watch}, shown: output}
				return t.getServices(cmd, v, store)
			}
			if output.wide {
				return usage(cmd, errors.New("-o wide is for services and endpoints"))
			}
			if watch {
				return t.watchObjects(cmd, q, output.names)
			}
			found, err := ask(t, cmd, q.ask)
			if err != nil {
				return err
			}
			found, left := usable(found)
			if output.names {
				err = writeNames(cmd.OutOrStdout(), found)
			} else {
				err = t.objects(cmd.OutOrStdout(), found, len(args) == 2)
			}
			return errors.Join(err, leftOut(left))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return t.completeObjects(cmd.Context(), args, namespace)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only this namespace (default: all)")
	cmd.Flags().BoolVar(&store, "store", false, "show what the store has, active or not")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "follow changes")
	cmd.Flags().VarP(&output, "output", "o",
		"table, wide, json, yaml or name")
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "json", "yaml",
		"name"}, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions))
	return cmd
}

// usable splits off the objects that cannot be read.
func usable(found []admin.Object) (fine, left []admin.Object) {
	for _, o := range found {
		if o.Unusable == "" {
			fine = append(fine, o)
		} else {
			left = append(left, o)
		}
	}
	return fine, left
}

// leftOut is the error that objects are not among those which were written; nil: all are.
func leftOut(list []admin.Object) error {
	var errs []error
	for _, o := range list {
		errs = append(errs, fmt.Errorf("left out: %s: %s", nameLine(o), o.Unusable))
	}
	return errors.Join(errs...)
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
		row := []string{o.Metadata.Namespace, o.Metadata.Name, orDash(placeOf(o.Origin))}
		if aged {
			row = append(row, ago(now, o.Metadata.Created))
		}
		rows = append(rows, row)
	}
	return columns(w, header, rows)
}

// placeOf is where an object was read: a file and its line, or a source and its revision there.
func placeOf(at admin.Origin) string {
	switch {
	case at.File != "" && at.Line > 0:
		return fmt.Sprintf("%s:%d", filepath.Clean(at.File), at.Line)
	case at.File != "":
		return filepath.Clean(at.File)
	case at.Revision != "" && at.Source != "":
		return at.Source + " revision " + at.Revision
	}
	return at.Source
}

// completeObjects offers the kinds that are in use, and after one the names of its objects:
// NAMESPACE/NAME, the name alone where the namespace is given.
func (t *tool) completeObjects(ctx context.Context, args []string, namespace string) ([]string,
	cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return append(kinds(), registryNouns()...), cobra.ShellCompDirectiveNoFileComp
	case 1:
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if _, ok := registryNoun(args[0]); ok {
		return t.completeServices(ctx, namespace)
	}
	return offer(ctx, t, func(c *admin.Client, ctx context.Context) ([]admin.Object, error) {
		return c.Objects(ctx, args[0], namespace, "")
	}, func(found []admin.Object) []string { return objectNames(found, namespace) })
}

// objectNames are those of objects: NAMESPACE/NAME, the name alone where the namespace is given.
func objectNames(found []admin.Object, namespace string) (out []string) {
	for _, o := range found {
		name := o.Metadata.Name
		if namespace == "" {
			name = o.Metadata.Namespace + "/" + name
		}
		out = append(out, name)
	}
	return out
}

// kinds are those that are in use, by the names that people type.
func kinds() []string {
	var out []string
	for _, k := range config.Kinds() {
		if k.Supported {
			out = append(out, strings.ToLower(string(k.Kind)))
		}
	}
	return slices.Clip(out)
}

func missingKind(*cobra.Command) string {
	return "KIND is missing: name one, such as \"ashorectl get virtualservice\"; there are " + strings.Join(append(kinds(), registryNouns()...), ", ")
}
