package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

func (t *tool) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the state of ashored: readiness, sources, problems, proxies",
		Long: `status shows the version of ashored, whether it is ready, and how many objects, services, endpoints and
problems it has. A line names each source that was not read yet, is down or is partly stale. Then follow all
proxies, as in "proxy-status", and the control planes that read the configuration over MCP.`,
		Example: "  ashorectl status\n  ashorectl status -o json | jq '.config'\n  watch ashorectl status",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := ask(t, cmd, (*admin.Client).Status)
			if err != nil {
				return err
			}
			return t.output.write(cmd.OutOrStdout(), s, func(w io.Writer) error { return statusText(w, s, time.Now()) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

func (t *tool) proxyStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "proxy-status [PROXY]",
		Aliases: []string{"ps"},
		Short:   "Show which configuration each proxy has acknowledged or rejected",
		Long: `proxy-status shows every connected proxy on one line. Each type of Envoy resources has a column:

  24          the proxy acknowledged the latest version of all 24 resources
  24 sent     a change is sent and not acknowledged yet
  24 behind   a change is not sent yet
  24 (1 bad)  the proxy rejected one resource, which is sent again when it changes
  -           the proxy did not request the type

Readers of the configuration (MCP) have a table of their own. Rejections follow with the proxy's messages, which
are shortened; -o json has all of them. With PROXY it shows one proxy, type by type, with versions.`,
		Example: `  ashorectl proxy-status
  ashorectl ps web-1.shop
  ashorectl ps -o json | jq '.[] | select(.types[].latest | not) | .id'`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := ask(t, cmd, (*admin.Client).Status)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return t.oneProxy(cmd.OutOrStdout(), s, args[0])
			}
			if s.Proxies == nil {
				s.Proxies = []admin.ProxyStatus{} // [] for programs, not null
			}
			return t.output.write(cmd.OutOrStdout(), s.Proxies, func(w io.Writer) error {
				return proxyStatusText(w, s, time.Now())
			})
		},
		ValidArgsFunction: offerFirst(t.completeProxies),
	}
}

// oneProxy shows the proxy of that name.
func (t *tool) oneProxy(w io.Writer, s admin.Status, id string) error {
	i := slices.IndexFunc(s.Proxies, func(p admin.ProxyStatus) bool { return p.ID == id || p.Node == id })
	if i < 0 {
		return fmt.Errorf("no proxy %q is connected: \"ashorectl proxy-status\" lists them", id)
	}
	p := s.Proxies[i]
	return t.output.write(w, p, func(w io.Writer) error { return proxyTable(w, p, time.Now()) })
}

// statusText writes the state of ashored, and all proxies.
func statusText(w io.Writer, s admin.Status, now time.Time) error {
	if err := headline(w, s, now); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return proxyStatusText(w, s, now)
}

// proxyStatusText writes the proxies, the readers and what they rejected.
func proxyStatusText(w io.Writer, s admin.Status, now time.Time) error {
	proxies, readers := apart(s.Proxies)
	if err := proxiesTable(w, proxies, now); err != nil {
		return err
	}
	if err := readersTable(w, readers, now); err != nil {
		return err
	}
	return rejections(w, s.Proxies, now)
}

// proxiesTable writes a row for each proxy.
func proxiesTable(w io.Writer, proxies []admin.ProxyStatus, now time.Time) error {
	if len(proxies) == 0 {
		_, err := fmt.Fprintln(w, "no proxy is connected")
		return err
	}
	types := typeColumns(proxies)
	header := []string{"PROXY", "KIND", "PEER", "CONNECTED", "AGENT", "ENVOY"}
	for _, typ := range types {
		header = append(header, strings.ToUpper(typ))
	}
	var rows [][]string
	for _, p := range proxies {
		row := []string{p.ID, p.Kind, p.Peer, ago(now, p.Connected), cmp.Or(p.Agent, "-"), cmp.Or(p.Envoy, "-")}
		for _, typ := range types {
			row = append(row, cell(p, typ))
		}
		rows = append(rows, row)
	}
	return columns(w, header, rows)
}

// headline is ashored itself: three lines.
func headline(w io.Writer, s admin.Status, now time.Time) error {
	state := "ready"
	if !s.Ready {
		state = "not ready, waits for " + strings.Join(s.Waiting, ", ")
	}
	var kinds []string
	total := 0
	for _, k := range slices.Sorted(maps.Keys(s.Config.Objects)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", s.Config.Objects[k], k))
		total += s.Config.Objects[k]
	}
	about := ""
	if len(kinds) > 0 {
		about = " (" + strings.Join(kinds, ", ") + ")"
	}
	problems := "no problems"
	if s.Config.Errors+s.Config.Warnings > 0 {
		problems = fmt.Sprintf("%s, %s: see \"ashorectl problems\"", count(s.Config.Errors, "error"),
			count(s.Config.Warnings, "warning"))
	}
	if _, err := fmt.Fprintf(w, "ashored %s, up %s, %s\n%s%s, %s, %s\n%s\n", s.Version.Version, ago(now, s.Started),
		state,
		count(total, "object"), about, count(s.Config.Services, "service"), count(s.Config.Endpoints,
			"endpoint"), problems); err != nil {
		return err
	}
	return sources(w, s.Sources, now)
}

// sources writes a line for each source that is not read, down, or partly stale.
func sources(w io.Writer, all []feed.SourceStatus, now time.Time) error {
	for _, s := range all {
		text := ""
		switch {
		case !s.Synced && s.Error != "":
			text = "not read yet: " + s.Error
		case !s.Synced:
			text = "not read yet"
		case s.Error != "":
			text = s.Error + ", for " + ago(now, s.ErrorSince)
		case s.Stale > 0:
			text = "older content is used of " + count(s.Stale, "part") + ": see \"ashorectl problems\""
		case s.Retained > 0:
			text = count(s.Retained, "item") + " are used although it does not supply them any more: see \"ashorectl problems\""
		default:
			continue
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", sourceTitle(s), text); err != nil {
			return err
		}
	}
	return nil
}

// typeColumns are the types that any proxy has, in the order in which they are sent.
func typeColumns(proxies []admin.ProxyStatus) []string {
	order := []string{"cds", "eds", "lds", "rds", "nds", "pcds"}
	var out []string
	for _, p := range proxies {
		for _, t := range p.Types {
			if !slices.Contains(out, t.Type) {
				out = append(out, t.Type)
			}
		}
	}
	rank := func(t string) int {
		if i := slices.Index(order, t); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(out, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return out
}

// cell is how a proxy stands with one type.
func cell(p admin.ProxyStatus, typ string) string {
	i := slices.IndexFunc(p.Types, func(t admin.TypeStatus) bool { return t.Type == typ })
	if i < 0 {
		return "-"
	}
	t := p.Types[i]
	text := fmt.Sprint(t.Resources)
	switch {
	case len(t.Rejected) > 0:
		return fmt.Sprintf("%s (%d bad)", text, len(t.Rejected))
	case t.Latest:
		return text
	case t.InFlight > 0:
		return text + " sent"
	default:
		return text + " behind"
	}
}

// proxyTable is one proxy for people.
func proxyTable(w io.Writer, p admin.ProxyStatus, now time.Time) error {
	way := "delta"
	if !p.Delta {
		way = "state of the world"
	}
	what := fmt.Sprintf("%s in namespace %s", p.Kind, p.Namespace)
	if p.Reader {
		what = "reader of configuration"
	}
	if _, err := fmt.Fprintf(w, "%s: %s at %s, connected since %s (%s ago), %s\n",
		p.ID, what, p.Peer, p.Connected.Local().Format(time.DateTime), ago(now, p.Connected), way); err != nil {
		return err
	}
	if err := proven(w, p, now); err != nil {
		return err
	}
	var rows [][]string
	for _, t := range p.Types {
		asked := fmt.Sprint(t.Subscribed)
		if t.Everything {
			asked = "all"
		}
		rows = append(rows, []string{t.Type, asked, fmt.Sprint(t.Resources), acknowledged(t, now),
			orDash(short(t.Target)), state(t)})
	}
	if err := columns(w, []string{"TYPE", "ASKED", "RESOURCES", "ACKNOWLEDGED", "LATEST", "STATE"}, rows); err != nil {
		return err
	}
	return rejections(w, []admin.ProxyStatus{p}, now)
}

// proven is who a proxy proved to be, and an empty line.
func proven(w io.Writer, p admin.ProxyStatus, now time.Time) error {
	text := "no identity: it is connected without TLS"
	if p.Identity != "" {
		text = fmt.Sprintf("%s, certificate %suntil %s (%s left)", p.Identity, spaced(p.Serial),
			p.Expires.Local().Format(time.DateTime), ago(p.Expires, now))
	}
	if p.Bundle != "" {
		text += ", trusts roots " + short(p.Bundle)
	}
	_, err := fmt.Fprintf(w, "%s\n\n", text)
	return err
}

// spaced is a word with a space after it; nothing for none.
func spaced(word string) string {
	if word == "" {
		return ""
	}
	return word + " "
}

// acknowledged is what a proxy accepted last, and how long ago.
func acknowledged(t admin.TypeStatus, now time.Time) string {
	if t.Acknowledged == "" && t.AcknowledgedAt.IsZero() {
		return "-"
	}
	if t.Acknowledged == "" { // its protocol has no names for contents
		return ago(now, t.AcknowledgedAt) + " ago"
	}
	if t.AcknowledgedAt.IsZero() {
		return short(t.Acknowledged) + ", before it connected"
	}
	return fmt.Sprintf("%s, %s ago", short(t.Acknowledged), ago(now, t.AcknowledgedAt))
}

// short is the name of a content for people: the beginning of each of its parts tells enough.
func short(version string) string {
	const letters = 7
	parts := strings.Split(version, ".")
	for i, p := range parts {
		parts[i] = p[:min(len(p), letters)]
	}
	return strings.Join(parts, ".")
}

// state says in words how a type stands.
func state(t admin.TypeStatus) string {
	switch {
	case len(t.Rejected) > 0:
		return count(len(t.Rejected), "resource") + " rejected"
	case t.Latest:
		return "latest"
	case t.InFlight > 0:
		return "sent, not answered yet"
	default:
		return "behind"
	}
}

// rejections lists what was rejected, in Envoy's words, or a reader's.
func rejections(w io.Writer, proxies []admin.ProxyStatus, now time.Time) error {
	for _, p := range proxies {
		for _, r := range refusals(p) {
			words, cut := gist(r.Error)
			if cut {
				words += fmt.Sprintf("\n  (all %s: ashorectl proxy-status %s -o json)",
					count(1+strings.Count(r.Error, "\n"), "line"), p.ID)
			}
			if _, err := fmt.Fprintf(w, "\n%s rejected %s:\n  %s\n", p.ID, culprit(r.of, r.Rejection, now),
				words); err != nil {
				return err
			}
		}
	}
	return nil
}

// rejected is one thing that a proxy rejected, of a type, or of a kind of configuration objects.
type rejected struct {
	of string
	admin.Rejection
}

// refusals are what a proxy rejected: an object once, by however many names of its kind it was
// sent.
func refusals(p admin.ProxyStatus) (out []rejected) {
	for _, t := range p.Types {
		for _, r := range t.Rejected {
			again := func(x rejected) bool {
				return x.of == t.Objects && x.Resource == r.Resource &&
					x.Error == r.Error
			}
			if isObjects(t) && slices.ContainsFunc(out, again) {
				continue
			}
			out = append(out, rejected{cmp.Or(t.Objects, t.Type), r})
		}
	}
	return out
}

// culprit names what was rejected, and when: "lds 0.0.0.0_80 5s ago".
func culprit(typ string, r admin.Rejection, now time.Time) string {
	out := typ + " " + r.Resource
	if r.Resource == "" {
		out = "a response of " + typ
	}
	if !r.Time.IsZero() {
		out += " " + ago(now, r.Time) + " ago"
	}
	return out
}
