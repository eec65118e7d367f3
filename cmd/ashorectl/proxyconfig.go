package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// configTypes are the types of "proxy-config" in the order of its help: name and xDS type.
func configTypes() [][2]string {
	return [][2]string{{"cluster", "cds"}, {"endpoint", "eds"}, {"listener", "lds"}, {"route", "rds"}, {"secret", "sds"},
		{"ecds", "ecds"}, {"nds", "nds"}, {"pcds", "pcds"}, {"probe", "probe"}, {"all", ""}}
}

func (t *tool) proxyConfigCommand() *cobra.Command {
	var name string
	var names []string
	for _, typ := range configTypes() {
		names = append(names, typ[0])
	}
	cmd := &cobra.Command{
		Use:     "proxy-config TYPE PROXY",
		Aliases: []string{"pc"},
		Short:   "Show the Envoy resources of a proxy; TYPE is " + strings.Join(names, ", "),
		Example: `  ashorectl proxy-config all web-1.shop
  ashorectl proxy-config route web-1.shop -o yaml
  ashorectl pc cluster web-1.shop --name 'outbound|80||db.shop.svc.cluster.local' -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			i := slices.Index(names, args[0])
			if i < 0 {
				return usage(cmd, fmt.Errorf("unknown type %q: want %s", args[0], strings.Join(names, ", ")))
			}
			d, err := ask(t, cmd, admin.CallDump, admin.DumpRequest{Proxy: args[1], Type: configTypes()[i][1]})
			if err != nil {
				return err
			}
			if name != "" {
				if d = named(d, name); len(d.Types) == 0 {
					return fmt.Errorf("%s has no resource %q of type %s: without --name all are listed", args[1], name, args[0])
				}
			}
			return t.print(cmd, d, dumpTable(d))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return names, cobra.ShellCompDirectiveNoFileComp
			}
			return argument(1, t.proxyNames)(cmd, args, "")
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "only the resource of this name")
	return cmd
}

// named returns the resources of d with a name.
func named(d admin.Dump, name string) admin.Dump {
	out := admin.Dump{Proxy: d.Proxy}
	for _, t := range d.Types {
		if i := slices.IndexFunc(t.Resources, func(r admin.DumpResource) bool { return r.Name == name }); i >= 0 {
			t.Resources = t.Resources[i : i+1]
			out.Types = append(out.Types, t)
		}
	}
	return out
}

func dumpTable(d admin.Dump) string {
	tb := newTable("TYPE", "NAME", "VERSION", "BYTES")
	for _, t := range d.Types {
		for _, r := range t.Resources {
			tb.add(t.Type, r.Name, r.Version, r.Bytes)
		}
	}
	return sections(tb.String(), "Use -o yaml to see the content.\n")
}
