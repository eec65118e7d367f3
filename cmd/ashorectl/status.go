package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) statusCommand() *cobra.Command {
	return sends(t, &cobra.Command{
		Use:   "status",
		Short: "Show the state of ashored, its sources and all proxies",
		Example: `  ashorectl status
  ashorectl status --socket .ashore/admin.sock
  ashorectl status -o json | jq .config`,
	}, admin.CallStatus, &admin.None{}, func(s admin.Status) string {
		return sections(summary(s), proxiesText(s.Proxies))
	})
}

func (t *tool) proxyStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "proxy-status [PROXY]",
		Aliases: []string{"ps"},
		Short:   "Show what proxies have acknowledged and rejected",
		Example: `  ashorectl proxy-status
  ashorectl proxy-status web-1.shop
  ashorectl ps -o json | jq -r '.[] | select(any(.types[]; .state != "SYNCED")) | .id'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := ask(t, cmd, admin.CallStatus, admin.None{})
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return t.print(cmd, s.Proxies, proxiesText(s.Proxies))
			}
			p, err := newestProxy(s.Proxies, args[0])
			if err != nil {
				return err
			}
			return t.print(cmd, p, proxyText(p))
		},
		ValidArgsFunction: argument(0, t.proxyNames),
	}
}

// newestProxy returns the proxy with an ID or a node ID, or whose node ID has id as its third part.
// While an Envoy takes over from another there are two, and the newer one counts.
func newestProxy(all []admin.ProxyStatus, id string) (newest admin.ProxyStatus, err error) {
	err = fmt.Errorf("no proxy %q is connected: \"ashorectl proxy-status\" lists them", id)
	for _, p := range all {
		part := strings.Split(p.Node, "~")
		same := p.ID == id || p.Node == id || len(part) == 4 && part[2] == id
		if same && (err != nil || p.Connected.After(newest.Connected)) {
			newest, err = p, nil
		}
	}
	return newest, err
}

// summary describes ashored itself, and the sources that have a problem.
func summary(s admin.Status) string {
	state := "ready"
	if !s.Ready {
		state = "not ready, waits for " + strings.Join(s.Waiting, ", ")
	}
	total, kinds := 0, ""
	for _, k := range slices.Sorted(maps.Keys(s.Config.Objects)) {
		total += s.Config.Objects[k]
		kinds += fmt.Sprintf(", %d %s", s.Config.Objects[k], k)
	}
	if kinds != "" {
		kinds = " (" + strings.TrimPrefix(kinds, ", ") + ")"
	}
	problems := "no problems"
	if s.Config.Errors+s.Config.Warnings > 0 {
		problems = fmt.Sprintf("%s, %s: see \"ashorectl problems\"", count(s.Config.Errors, "error"),
			count(s.Config.Warnings, "warning"))
	}
	return fmt.Sprintf("ashored %s, up %s, %s\n%s%s, %s, %s\n%s\n%s", s.Version.Version, age(s.Started), state,
		count(total, "object"), kinds, count(s.Config.Services, "service"), count(s.Config.Endpoints, "endpoint"),
		problems, sourceReasons(s.Sources))
}

// proxiesText shows the proxies, the control planes that read configuration over MCP, and what they
// rejected.
func proxiesText(all []admin.ProxyStatus) string {
	texts := []string{cmp.Or(proxyTable(all), "no proxy is connected\n")}
	for _, p := range all {
		texts = append(texts, rejectionsText(p))
	}
	return sections(texts...)
}

// proxyTable has the columns of istioctl's proxy-status, as far as they mean something here.
func proxyTable(list []admin.ProxyStatus) string {
	types := typeColumns(list)
	header := []string{"NAME", "KIND"}
	for _, typ := range types {
		header = append(header, strings.ToUpper(typ))
	}
	tb := newTable(append(header, "PEER", "CONNECTED", "AGENT", "ENVOY")...)
	for _, p := range list {
		row := []any{p.ID, p.Kind}
		for _, typ := range types {
			cell := ""
			if i := slices.IndexFunc(p.Types, func(t admin.TypeStatus) bool { return t.Type == typ }); i >= 0 {
				cell = state(p.Types[i])
			}
			row = append(row, cell)
		}
		tb.add(append(row, p.Peer, age(p.Connected), p.Agent, p.Envoy)...)
	}
	return tb.String()
}

// typeColumns returns the xDS types that any proxy subscribes to, in istioctl's order.
func typeColumns(list []admin.ProxyStatus) []string {
	known := []string{"cds", "lds", "eds", "rds", "ecds", "sds", "nds", "pcds", "probe"}
	return slices.DeleteFunc(known, func(typ string) bool {
		return !slices.ContainsFunc(list, func(p admin.ProxyStatus) bool {
			return slices.ContainsFunc(p.Types, func(t admin.TypeStatus) bool { return t.Type == typ })
		})
	})
}

// state returns the state of a type in istioctl's words.
func state(t admin.TypeStatus) string { return strings.ReplaceAll(t.State, "_", " ") }

// proxyText shows one proxy, type by type.
func proxyText(p admin.ProxyStatus) string {
	protocol, role := "delta", fmt.Sprintf("%s in namespace %s", p.Kind, p.Namespace)
	if !p.Delta {
		protocol = "state of the world"
	}
	if p.Kind == admin.Reader {
		role = "reader of configuration"
	}
	identity := "no identity: it is connected without TLS"
	if p.Identity != "" {
		identity = fmt.Sprintf("%s, certificate %s until %s (%s)", p.Identity, p.Serial, local(p.Expires), when(p.Expires))
	}
	if p.Bundle != "" {
		identity += ", trusts roots " + p.Bundle[:min(len(p.Bundle), 7)]
	}
	head := fmt.Sprintf("%s: %s at %s, connected since %s (%s), %s\n%s\n", p.ID, role, p.Peer, local(p.Connected),
		when(p.Connected), protocol, identity)
	tb := newTable("TYPE", "SUBSCRIBED", "RESOURCES", "ACKNOWLEDGED", "REJECTED", "STATE")
	for _, t := range p.Types {
		subscribed := fmt.Sprint(t.Subscribed)
		if t.Everything {
			subscribed = "all"
		}
		tb.add(t.Type, subscribed, t.Resources, when(t.AcknowledgedAt), len(t.Rejected), state(t))
	}
	return sections(head, tb.String(), rejectionsText(p))
}

// rejectionsText shows what a proxy rejected, once: a reader subscribes to a kind by several type
// names.
func rejectionsText(p admin.ProxyStatus) string {
	var texts []string
	for _, t := range p.Types {
		for _, r := range t.Rejected {
			what := strings.Join([]string{cmp.Or(t.Objects, t.Type), cmp.Or(r.Resource, "a response"), when(r.Time)}, " ")
			text := fmt.Sprintf("%s rejected %s:\n  %s\n", p.ID, strings.TrimSpace(what), shorten(r.Error, p.ID))
			if len(r.Patches) > 0 {
				text += "  It has the patches " + strings.Join(r.Patches, ", ") + "\n"
			}
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return sections(slices.Compact(texts)...)
}

// shorten cuts a long message of Envoy, which quotes the whole resource. The first line names the
// resource, and the reason is at the end of the first or of the last line.
func shorten(message, proxy string) string {
	const short, most = 600, 300
	message = strings.TrimSpace(message)
	if len(message) <= short && strings.Count(message, "\n") < 4 {
		return strings.ReplaceAll(message, "\n", "\n  ")
	}
	first, rest, _ := strings.Cut(message, "\n")
	last := rest[strings.LastIndex(rest, "\n")+1:]
	if rest == "" {
		last = first
	}
	text := first[:min(len(first), most)] + " … " + last[max(0, len(last)-most):]
	return strings.ToValidUTF8(text, "") + fmt.Sprintf("\n  (all of it: ashorectl proxy-status %s -o json)", proxy)
}
