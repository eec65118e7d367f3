package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// configType is a type of resources that a proxy receives.
type configType struct {
	name  string // as in "istioctl proxy-config"
	short string // in the admin interface; empty: all types
}

// configTypes returns the types that a proxy or its agent may request.
func configTypes() []configType {
	return []configType{
		{"all", ""}, {"cluster", "cds"}, {"endpoint", "eds"}, {"listener", "lds"}, {"route", "rds"},
		{"secret", "sds"}, {"extension", "ecds"}, {"names", "nds"}, {"roots", "pcds"}, {"probe", "probe"},
	}
}

func (t *tool) proxyConfigCommand() *cobra.Command {
	var name string
	var names []string
	for _, typ := range configTypes() {
		names = append(names, typ.name)
	}
	cmd := &cobra.Command{
		Use:     "proxy-config TYPE PROXY",
		Aliases: []string{"pc"},
		Short:   "Show the Envoy resources that a proxy receives",
		Long: `proxy-config shows the resources that a proxy receives: their names, versions and sizes, or their content
with -o yaml or -o json. PROXY is a name from "ashorectl proxy-status". Keys and tokens are never shown.
It needs the role operator, and the audit log records it.

TYPE is one of ` + strings.Join(names, ", ") + `.`,
		Example: `  ashorectl proxy-config all web-1.shop
  ashorectl proxy-config route web-1.shop -o yaml
  ashorectl pc cluster web-1.shop --name 'outbound|80||db.shop.svc.cluster.local' -o yaml`,
		Args: between(2, 2, t.missingProxy),
		RunE: func(cmd *cobra.Command, args []string) error {
			i := slices.IndexFunc(configTypes(), func(c configType) bool { return c.name == strings.TrimSuffix(args[0], "s") || c.name == args[0] })
			if i < 0 {
				return usage(cmd, fmt.Errorf("unknown TYPE %q: want %s", args[0], strings.Join(names, ", ")))
			}
			d, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.Dump, error) {
				return c.Dump(ctx, args[1], configTypes()[i].short)
			})
			if err != nil {
				return err
			}
			if name != "" {
				if d = only(d, name); len(d.Types) == 0 {
					return fmt.Errorf("%s receives no resource %q: \"ashorectl proxy-config all %s\" lists the names", args[1], name, args[1])
				}
			}
			return t.output.write(cmd.OutOrStdout(), d, func(w io.Writer) error { return configTable(w, d) })
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return names, cobra.ShellCompDirectiveNoFileComp
			case 1:
				return t.completeProxies(cmd.Context())
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "only the resource with this name")
	must(cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions))
	return cmd
}

// only returns the resources of d with a name.
func only(d admin.Dump, name string) admin.Dump {
	out := admin.Dump{Proxy: d.Proxy}
	for _, t := range d.Types {
		if i := slices.IndexFunc(t.Resources, func(r admin.DumpResource) bool { return r.Name == name }); i >= 0 {
			t.Resources = t.Resources[i : i+1]
			out.Types = append(out.Types, t)
		}
	}
	return out
}

func configTable(w io.Writer, d admin.Dump) error {
	var rows [][]string
	for _, t := range d.Types {
		for _, r := range t.Resources {
			rows = append(rows, []string{t.Type, r.Name, r.Version, fmt.Sprint(r.Bytes)})
		}
	}
	err := columns(w, []string{"TYPE", "NAME", "VERSION", "BYTES"}, rows)
	_, writeErr := fmt.Fprintln(w, "\nUse -o yaml to see the content.")
	return errors.Join(err, writeErr)
}

// missingProxy says that an argument is missing. If ashored answers, it lists connected proxies.
func (t *tool) missingProxy(cmd *cobra.Command) string {
	example, list := "web-1.shop", "\"ashorectl proxy-status\" lists them"
	if names, directive := t.completeProxies(cmd.Context()); directive != cobra.ShellCompDirectiveError {
		list = "none is connected"
		if len(names) > 0 {
			example, list = names[0], few(names)+" are connected"
		}
	}
	return fmt.Sprintf("want TYPE and PROXY, such as \"ashorectl proxy-config all %s\"; proxies: %s", example, list)
}

// few returns the first names of a list, for messages.
func few(names []string) string {
	const limit = 20
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}

// completeProxies offers the connected proxies; none if ashored does not answer.
func (t *tool) completeProxies(ctx context.Context) ([]string, cobra.ShellCompDirective) {
	return offer(ctx, t, (*admin.Client).Status, func(s admin.Status) (out []string) {
		for _, p := range s.Proxies {
			out = append(out, p.ID)
		}
		return out
	})
}
