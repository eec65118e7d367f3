package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) dumpCommand() *cobra.Command {
	var typ, name string
	cmd := &cobra.Command{
		Use:   "dump PROXY",
		Short: "Show what a proxy is sent",
		Long: `dump shows the Envoy resources that a proxy is sent: as a table of their names, versions and sizes,
or whole with -o yaml or -o json. PROXY is a name from "ashorectl status". Keys and tokens are never in
it. ashored logs who read a dump.`,
		Example: "  ashorectl dump web-1.shop\n  ashorectl dump web-1.shop --type cds --name 'outbound|80||db.shop.svc.cluster.local' -o yaml",
		Args:    between(1, 1, t.missingProxy),
		RunE: func(cmd *cobra.Command, args []string) error {
			if typ != "" && !slices.Contains(dumpTypes(), strings.ToLower(typ)) {
				return usage(cmd, fmt.Errorf("--type %s is not a type: want %s", typ, strings.Join(dumpTypes(), ", ")))
			}
			d, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.Dump,
				error) {
				return c.Dump(ctx, args[0], typ)
			})
			if err != nil {
				return err
			}
			if name != "" {
				if d = only(d, name); len(d.Types) == 0 {
					return fmt.Errorf("%s is sent no resource %q: \"ashorectl dump %s\" lists the names", args[0], name,
						args[0])
				}
			}
			return t.output.write(cmd.OutOrStdout(), d, func(w io.Writer) error { return dumpTable(w, d) })
		},
		ValidArgsFunction: offerFirst(t.completeProxies),
	}
	cmd.Flags().StringVar(&typ, "type", "", "only this type: "+strings.Join(dumpTypes(), ", ")+" (default: all)")
	cmd.Flags().StringVar(&name, "name", "", "only the resource of this name")
	must(cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(dumpTypes(),
		cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions))
	return cmd
}

// dumpTypes are the types that a proxy or its agent may ask for, by their short names.
func dumpTypes() []string {
	return []string{"cds", "eds", "lds", "rds", "sds", "ecds", "nds", "pcds", "probe"}
}

// only is what of d has that name.
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

func dumpTable(w io.Writer, d admin.Dump) error {
	var rows [][]string
	for _, t := range d.Types {
		for _, r := range t.Resources {
			rows = append(rows, []string{t.Type, r.Name, r.Version, fmt.Sprint(r.Bytes)})
		}
	}
	if err := columns(w, []string{"TYPE", "NAME", "VERSION", "BYTES"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nUse -o yaml to see them whole.")
	return err
}

// missingProxy says that no proxy was named, and which are connected when ashored answers.
func (t *tool) missingProxy(cmd *cobra.Command) string {
	text, example, list := "PROXY is missing: name one", "web-1.shop", "\"ashorectl status\" lists them"
	if names, directive := t.completeProxies(cmd.Context()); directive != cobra.ShellCompDirectiveError {
		list = "none is connected"
		if len(names) > 0 {
			example, list = names[0], "connected are "+strings.Join(names[:min(len(names), 20)], ", ")
		}
		if more := len(names) - 20; more > 0 {
			list += fmt.Sprintf(" and %d more (\"ashorectl status\" lists them)", more)
		}
	}
	return fmt.Sprintf("%s, such as \"ashorectl dump %s\"; %s", text, example, list)
}

// completeProxies offers the proxies that are connected; none when nobody answers.
func (t *tool) completeProxies(ctx context.Context) ([]string, cobra.ShellCompDirective) {
	return offer(ctx, t, (*admin.Client).Status, func(s admin.Status) (out []string) {
		for _, p := range s.Proxies {
			out = append(out, p.ID)
		}
		return out
	})
}
