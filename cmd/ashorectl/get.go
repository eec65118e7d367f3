package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// getQuery is the command line of "get".
type getQuery struct {
	kind, namespace, name string
	store                 bool
}

// item is one object, service or endpoint.
type item struct {
	name  string // "virtualservice shop/web", for -o name
	value any    // for JSON and YAML
	cells []any
	wide  []any // more cells, for -o wide
}

func (t *tool) getCommand() *cobra.Command {
	var q getQuery
	var allNamespaces bool
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show active objects and where each was defined; KIND may be services or endpoints",
		Example: `  ashorectl get virtualservice
  ashorectl get vs web -n shop -o yaml
  ashorectl get endpoints web.shop -o wide`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.kind = args[0]; allNamespaces {
				q.namespace = ""
			}
			if len(args) == 2 {
				var err error
				if q.namespace, q.name, err = splitName(args[1], q.namespace); err != nil {
					return usage(cmd, err)
				}
			}
			switch strings.ToLower(q.kind) {
			case "services", "service", "svc":
				return t.getServices(cmd, q, false)
			case "endpoints", "endpoint", "ep":
				return t.getServices(cmd, q, true)
			}
			if err := checkKind(cmd, q.kind); err != nil {
				return err
			}
			return t.getObjects(cmd, q)
		},
		ValidArgsFunction: t.kindAndName(false, "services", "endpoints"),
	}
	cmd.Flags().StringVarP(&q.namespace, "namespace", "n", "", "only this namespace (default: all)")
	cmd.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "all namespaces; overrides -n")
	cmd.Flags().BoolVar(&q.store, "store", false, "show the objects of the store, active or not")
	return cmd
}

// object is an admin.Object in the form that operators write.
type object struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   admin.Metadata  `json:"metadata"`
	Spec       json.RawMessage `json:"spec,omitempty"`
}

func (t *tool) getObjects(cmd *cobra.Command, q getQuery) error {
	found, err := ask(t, cmd, admin.CallObjects,
		admin.ObjectQuery{Kind: q.kind, Namespace: q.namespace, Name: q.name, Store: q.store})
	if err != nil {
		return err
	}
	items := []item{}
	for _, o := range found {
		name := objectName(o)
		items = append(items, item{name: name, value: object{o.APIVersion, o.Kind, o.Metadata, o.Spec},
			cells: []any{o.Metadata.Namespace, o.Metadata.Name, placeOf(o.Origin)}, wide: []any{age(o.Metadata.Created)}})
	}
	var v any
	if q.name != "" && len(items) == 1 {
		v = items[0].value
	} else {
		v = map[string]any{"apiVersion": "v1", "kind": "List", "items": values(items)}
	}
	return t.printItems(cmd, v, []string{"NAMESPACE", "NAME", "READ FROM"}, []string{"AGE"}, items)
}

func objectName(o admin.Object) string {
	return printable(strings.ToLower(o.Kind) + " " + o.Metadata.Namespace + "/" + o.Metadata.Name)
}

// placeOf returns where an object was read: a file and line, or a source and its revision.
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

// splitName splits a name that may be NAMESPACE/NAME; namespace is that of --namespace.
func splitName(name, namespace string) (string, string, error) {
	ns, n, both := strings.Cut(name, "/")
	switch {
	case !both:
		return namespace, name, nil
	case namespace != "" && namespace != ns:
		return "", "", fmt.Errorf("namespace %q in the name, and %q in -n: want one namespace", ns, namespace)
	}
	return ns, n, nil
}

// values returns the values of items; never nil.
func values(items []item) []any {
	out := make([]any, len(items))
	for i, it := range items {
		out[i] = it.value
	}
	return out
}

// printItems prints v, or the names of items, or a table of them.
func (t *tool) printItems(cmd *cobra.Command, v any, columns, wide []string, items []item) error {
	if t.output == wideFormat {
		columns = append(columns, wide...)
	}
	tb := newTable(columns...)
	names := ""
	for _, it := range items {
		cells := it.cells
		if t.output == wideFormat {
			cells = append(cells, it.wide...)
		}
		tb.add(cells...)
		names += it.name + "\n"
	}
	switch {
	case t.output == nameFormat:
		return t.print(cmd, v, names)
	case len(items) == 0:
		return t.print(cmd, v, "none\n")
	}
	return t.print(cmd, v, tb.String())
}
