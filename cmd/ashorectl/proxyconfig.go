package main

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// configView is how "proxy-config" shows the resources of one type.
type configView struct {
	name    string
	aliases []string
	xds     string // the xDS type
	header  []string
	filters []string // the flags that select rows
	rows    func(admin.DumpResource, node) []configRow
}

// configRow is one line. fields are what filters compare, by flag.
type configRow struct {
	cells  []any
	fields map[string]string
}

// configViews are the types of "proxy-config", in the order of its help. Columns and filters are
// those of istioctl.
func configViews() []configView {
	plain := []string{"NAME", "VERSION", "BYTES"}
	return []configView{
		{"cluster", []string{"clusters", "c"}, "cds",
			[]string{"SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE"},
			[]string{"fqdn", "port", "subset", "direction", "name"}, clusterRows},
		{"listener", []string{"listeners", "l"}, "lds", []string{"ADDRESSES", "PORT", "MATCH", "DESTINATION"},
			[]string{"address", "port", "type", "name"}, listenerRows},
		{"route", []string{"routes", "r"}, "rds",
			[]string{"NAME", "VHOST NAME", "DOMAINS", "MATCH", "VIRTUAL SERVICE"}, []string{"name"}, routeRows},
		{"endpoint", []string{"endpoints", "ep"}, "eds", []string{"ENDPOINT", "STATUS", "LOCALITY", "CLUSTER"},
			[]string{"address", "port", "cluster", "status", "name"}, endpointRows},
		{"secret", []string{"secrets", "s"}, "sds", []string{"RESOURCE NAME", "TYPE", "STATUS", "VALID CERT",
			"SERIAL NUMBER", "NOT AFTER", "NOT BEFORE"}, []string{"name"}, secretRows},
		{"ecds", []string{"ec"}, "ecds", []string{"ECDS NAME", "TYPE"}, []string{"name"}, filterRows},
		{"nds", nil, "nds", plain, []string{"name"}, plainRows},
		{"pcds", nil, "pcds", plain, []string{"name"}, plainRows},
		{"probe", nil, "probe", plain, []string{"name"}, plainRows},
	}
}

// configTypeNames are the values of TYPE.
func configTypeNames() []string {
	names := []string{"all"}
	for _, v := range configViews() {
		names = append(names, v.name)
	}
	return append(names, "bootstrap", "log")
}

// configFilters are the flags that select resources, with their help.
func configFilters() [][2]string {
	return [][2]string{{"fqdn", "clusters: a part of the `host`"}, {"port", "clusters, listeners, endpoints: the port"},
		{"subset", "clusters: a part of the name of the subset"}, {"direction", "clusters: inbound or outbound"},
		{"name", "the `name` of the resource"}, {"address", "listeners, endpoints: the IP address"},
		{"type", "listeners: HTTP, TCP or HTTP+TCP"}, {"cluster", "endpoints: the name of the cluster"},
		{"status", "endpoints: HEALTHY, UNHEALTHY or DRAINING"}}
}

// filterValues are the values of the filters that have few.
func filterValues() map[string][]string {
	return map[string][]string{"direction": {"inbound", "outbound"}, "type": {"HTTP", "TCP", "HTTP+TCP"},
		"status": {"HEALTHY", "UNHEALTHY", "DRAINING"}}
}

// wantedValue says what a filter accepts; empty if value is valid.
func wantedValue(filter, value string) string {
	switch filter {
	case "port":
		if n, err := strconv.ParseUint(value, 10, 16); err != nil || n == 0 {
			return "a port from 1 to 65535"
		}
	case "address":
		if net.ParseIP(value) == nil {
			return "an IP address"
		}
	}
	values := filterValues()[filter]
	same := func(v string) bool { return strings.EqualFold(v, value) }
	if len(values) == 0 || slices.ContainsFunc(values, same) {
		return ""
	}
	return strings.Join(values, ", ")
}

func (t *tool) proxyConfigCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:     "proxy-config {" + strings.Join(configTypeNames(), "|") + "} PROXY",
		Aliases: []string{"pc"},
		Short:   "Show the Envoy resources of a proxy, as tables or in full",
		Example: `  ashorectl proxy-config all web-1.shop
  ashorectl proxy-config route web-1.shop -o yaml
  ashorectl pc cluster web-1.shop --fqdn db.shop.svc.cluster.local --port 80`,
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return configTypeNames(), cobra.ShellCompDirectiveNoFileComp
			}
			return argument(1, t.proxyNames)(cmd, args, "")
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		filters := map[string]string{}
		for _, f := range configFilters() {
			if flag := cmd.Flags().Lookup(f[0]); flag.Changed {
				filters[f[0]] = flag.Value.String()
				if want := wantedValue(f[0], filters[f[0]]); want != "" {
					return usage(cmd, fmt.Errorf("--%s %s: want %s", f[0], filters[f[0]], want))
				}
			}
		}
		views := configViews()
		i := slices.IndexFunc(views, func(v configView) bool { return v.name == args[0] || slices.Contains(v.aliases, args[0]) })
		switch {
		case args[0] == "bootstrap" || args[0] == "b":
			return t.showLocal(cmd, socket, args[1], true)
		case args[0] == "log" || args[0] == "o":
			return t.showLocal(cmd, socket, args[1], false)
		case args[0] == "all":
			return t.showConfig(cmd, args[1], "", views, filters)
		case i < 0:
			return usage(cmd, fmt.Errorf("unknown type %q: want %s", args[0], strings.Join(configTypeNames(), ", ")))
		}
		for name := range filters {
			if !slices.Contains(views[i].filters, name) {
				return usage(cmd, fmt.Errorf("--%s is not for %s, which has --%s", name, args[0],
					strings.Join(views[i].filters, ", --")))
			}
		}
		return t.showConfig(cmd, args[1], views[i].xds, views[i:i+1], filters)
	}
	for _, f := range configFilters() {
		cmd.Flags().String(f[0], "", f[1])
	}
	cmd.Flags().StringVar(&socket, "admin-socket", "", "bootstrap, log: Envoy's admin `socket` on this machine "+
		"(default: those of the agents)")
	return cmd
}

// showConfig prints the resources of a proxy that filters select. As JSON and YAML, one type is a
// list of Envoy's resources, and all types are what ashored answers.
func (t *tool) showConfig(cmd *cobra.Command, proxy, xds string, views []configView, filters map[string]string) error {
	dump, err := ask(t, cmd, admin.CallDump, admin.DumpRequest{Proxy: proxy, Type: xds})
	if err != nil {
		return err
	}
	var texts []string
	bodies := []json.RawMessage{}
	for _, v := range views {
		i := slices.IndexFunc(dump.Types, func(d admin.DumpType) bool { return d.Type == v.xds })
		if i < 0 {
			continue
		}
		table, selected, err := v.show(dump.Types[i].Resources, filters)
		if err != nil {
			return err
		}
		dump.Types[i].Resources = selected
		for _, r := range selected {
			bodies = append(bodies, r.Body)
		}
		texts = append(texts, table)
	}
	text := sections(texts...)
	if text == "" && len(filters) > 0 {
		return fmt.Errorf("%s has no such resource: without filters all are listed", proxy)
	}
	if xds != "" {
		return t.print(cmd, bodies, text)
	}
	return t.print(cmd, dump, text)
}

// show returns a table of the rows that filters select, and the resources that have one.
func (v configView) show(resources []admin.DumpResource, filters map[string]string) (string, []admin.DumpResource, error) {
	tb := newTable(v.header...)
	selected := []admin.DumpResource{}
	for _, r := range resources {
		content, err := readNode(r.Body)
		if err != nil {
			return "", nil, fmt.Errorf("read %s %s: %w", v.name, r.Name, err)
		}
		before := len(tb.rows)
		for _, row := range v.rows(r, content) {
			if row.matches(r.Name, filters, v.filters) {
				tb.add(row.cells...)
			}
		}
		if len(tb.rows) > before || len(filters) == 0 { // a resource may have no row
			selected = append(selected, r)
		}
	}
	return tb.String(), selected, nil
}

// matches reports whether a row of the resource of that name has what the filters of its type ask
// for. As in istioctl, a part of a host or of a subset is enough.
func (row configRow) matches(name string, filters map[string]string, known []string) bool {
	for flag, want := range filters {
		got := row.fields[flag]
		switch {
		case !slices.Contains(known, flag): // a type among all
		case flag == "name" && name == want:
		case (flag == "fqdn" || flag == "subset") && strings.Contains(got, want):
		case slices.Contains(strings.Split(strings.ToLower(got), ","), strings.ToLower(want)):
		default:
			return false
		}
	}
	return true
}
