package intercept

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"text/template"
)

// Fixed ports and addresses. The control plane generates Envoy's listeners for them.
const (
	outboundPort = 15001
	inboundPort  = 15006
	// Address6 is on the loopback interface while rules are installed. IPv6 connections are
	// redirected to it, because the kernel refuses a redirect from other addresses to ::1. The
	// agent answers DNS there too.
	Address6 = "fd61:7368:6f72:65::1"
)

// Config is the input of the rules.
type Config struct {
	Settings Settings
	// User runs Envoy, Group is the group of Envoy and the agent. Empty: ashore-envoy and
	// ashore-proxy.
	User, Group string
	// DNSPort is the agent's DNS port. Zero: queries are not captured.
	DNSPort int
	// ControlPlane are addresses that are never intercepted. Install fills them in.
	ControlPlane []netip.AddrPort
}

func (c Config) withDefaults() Config {
	if c.User == "" {
		c.User = "ashore-envoy"
	}
	if c.Group == "" {
		c.Group = "ashore-proxy"
	}
	return c
}

// family splits a list of ranges by IP version, as elements of nft sets.
type family struct{ V4, V6 string }

func families(ranges []string) family {
	var v4, v6 []string
	for _, r := range ranges {
		if p, ok := parseRange(r); ok && p.Addr().Is4() {
			v4 = append(v4, p.String())
		} else if ok {
			v6 = append(v6, p.String())
		}
	}
	return family{strings.Join(v4, ", "), strings.Join(v6, ", ")}
}

// Render returns the ruleset, in nft's language. It replaces what is installed.
func (c Config) Render() (string, error) {
	c = c.withDefaults()
	s := c.Settings
	include := withoutAll(s.IncludeOutboundIPRanges)
	inbound := append([]string{"15000-15099"}, s.ExcludeInboundPorts...)
	var control4, control6 []string
	for _, a := range c.ControlPlane {
		element := fmt.Sprintf("%s . %d", a.Addr(), a.Port())
		if a.Addr().Is4() {
			control4 = append(control4, element)
		} else {
			control6 = append(control6, element)
		}
	}
	var users []string
	for _, u := range s.ExcludeUsers {
		users = append(users, quote(u))
	}
	t, err := template.New("rules").Parse(rules)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = t.Execute(&out, map[string]any{
		"Group": quote(c.Group), "User": quote(c.User), "Users": strings.Join(users, ", "),
		"Outbound": outboundPort, "Inbound": inboundPort, "DNS": c.DNSPort, "Address6": Address6,
		"IncludeSome": len(include) > 0, "Include": families(include), "Exclude": families(s.ExcludeOutboundIPRanges),
		"Control":      family{strings.Join(control4, ", "), strings.Join(control6, ", ")},
		"ExcludePorts": strings.Join(s.ExcludeOutboundPorts, ", "),
		"InInclude":    strings.Join(withoutAll(s.IncludeInboundPorts), ", "), "InExclude": strings.Join(inbound, ", "),
	})
	return out.String(), err
}

// quote returns a user or group for nft, which resolves names.
func quote(name string) string {
	if _, err := strconv.ParseUint(name, 10, 32); err == nil {
		return name
	}
	return strconv.Quote(name)
}

// replace is the beginning of every ruleset: it deletes the table, whether it exists or not.
const replace = `table inet ashore {}
delete table inet ashore
`

// rules match only the first packets of connections, so that open connections continue. Captured
// queries have a conntrack zone of their own. Without it the kernel confuses the captured query
// with one that the agent forwards from the same port, and sends that one back to the agent.
const rules = `# Written by "ashore-agent intercept": change the settings "interception", not this table.
` + replace + `table inet ashore {
	counter outbound { comment "connections that went to Envoy" }
	counter inbound { comment "connections that came to Envoy" }
	counter refused { comment "inbound connections refused because Envoy does not listen" }
	counter dns { comment "DNS queries that went to the agent" }
{{- with .Users}}
	set excluded_users { type uid; elements = { {{.}} } }
{{- end}}
{{- with .Control.V4}}
	set control_plane4 { type ipv4_addr . inet_service; elements = { {{.}} } }
{{- end}}
{{- with .Control.V6}}
	set control_plane6 { type ipv6_addr . inet_service; elements = { {{.}} } }
{{- end}}
{{- with .Include.V4}}
	set outbound_include4 { type ipv4_addr; flags interval; auto-merge; elements = { {{.}} } }
{{- end}}
{{- with .Include.V6}}
	set outbound_include6 { type ipv6_addr; flags interval; auto-merge; elements = { {{.}} } }
{{- end}}
{{- with .Exclude.V4}}
	set outbound_exclude4 { type ipv4_addr; flags interval; auto-merge; elements = { {{.}} } }
{{- end}}
	set outbound_exclude6 { type ipv6_addr; flags interval; auto-merge; elements = { fe80::/10{{with .Exclude.V6}}, {{.}}{{end}} } }
{{- with .ExcludePorts}}
	set outbound_exclude_ports { type inet_service; flags interval; auto-merge; elements = { {{.}} } }
{{- end}}
{{- with .InInclude}}
	set inbound_include_ports { type inet_service; flags interval; auto-merge; elements = { {{.}} } }
{{- end}}
	set inbound_exclude_ports { type inet_service; flags interval; auto-merge; elements = { {{.InExclude}} } }
{{if .DNS}}
	# Captured queries are tracked apart from those that the agent forwards.
	chain dns_zone {
		type filter hook output priority raw; policy accept;
		meta skgid {{.Group}} return
{{- if .Users}}
		meta skuid @excluded_users return
{{- end}}
		udp dport 53 ct original zone set {{.DNS}}
	}

	chain dns {
		counter name dns
		meta nfproto ipv4 meta l4proto { tcp, udp } redirect to :{{.DNS}}
		meta l4proto { tcp, udp } dnat ip6 to [{{.Address6}}]:{{.DNS}}
	}
{{end}}
	# What applications of this machine call.
	chain output {
		type nat hook output priority -110; policy accept;
		meta skgid {{.Group}} goto from_proxy
{{- if .Users}}
		meta skuid @excluded_users return
{{- end}}
		tcp flags & (fin | syn | rst | ack) != syn return
{{- if .DNS}}
		meta l4proto { tcp, udp } th dport 53 goto dns
{{- end}}
		meta l4proto != tcp return
		fib daddr type local return
{{- if .Control.V4}}
		ip daddr . tcp dport @control_plane4 return
{{- end}}
{{- if .Control.V6}}
		ip6 daddr . tcp dport @control_plane6 return
{{- end}}
{{- if .IncludeSome}}
		{{if .Include.V4}}ip daddr != @outbound_include4 return{{else}}meta nfproto ipv4 return{{end}}
		{{if .Include.V6}}ip6 daddr != @outbound_include6 return{{else}}meta nfproto ipv6 return{{end}}
{{- end}}
{{- if .Exclude.V4}}
		ip daddr @outbound_exclude4 return
{{- end}}
		ip6 daddr @outbound_exclude6 return
{{- if .ExcludePorts}}
		tcp dport @outbound_exclude_ports return
{{- end}}
		counter name outbound
		meta nfproto ipv4 meta l4proto tcp redirect to :{{.Outbound}}
		meta l4proto tcp dnat ip6 to [{{.Address6}}]:{{.Outbound}}
	}

	# Envoy's connections to this machine's own addresses go to the inbound port. Not its connections to the
	# application (from 127.0.0.6, ::1), nor probes.
	chain from_proxy {
		meta skuid != {{.User}} return
		fib daddr type != local return
		ip daddr 127.0.0.0/8 return
		ip saddr 127.0.0.0/8 return
		ip6 daddr { ::1, {{.Address6}} } return
		ip6 saddr ::1 return
{{- if .InInclude}}
		tcp dport != @inbound_include_ports return
{{- end}}
		tcp dport @inbound_exclude_ports return
		tcp flags & (fin | syn | rst | ack) == syn counter name inbound redirect to :{{.Inbound}}
	}

	# What arrives from the network. TPROXY keeps the port policy of firewalls; if Envoy does not listen, the
	# connection is refused.
	chain prerouting {
		type filter hook prerouting priority -80; policy accept;
		iif lo return
		meta iifkind "bridge" return
		meta l4proto != tcp return
		fib daddr type != local return
{{- if .InInclude}}
		tcp dport != @inbound_include_ports return
{{- end}}
		tcp dport @inbound_exclude_ports return
		tcp flags & (fin | syn | rst | ack) == syn counter name inbound
		meta l4proto tcp tproxy to :{{.Inbound}} accept
		tcp flags & (fin | syn | rst | ack) == syn counter name refused reject with tcp reset
	}

	# What containers on a bridge call: with br_netfilter the kernel skips TPROXY there.
	chain prerouting_bridge {
		type nat hook prerouting priority -80; policy accept;
		meta iifkind != "bridge" return
		fib daddr type != local return
{{- if .InInclude}}
		tcp dport != @inbound_include_ports return
{{- end}}
		tcp dport @inbound_exclude_ports return
		tcp flags & (fin | syn | rst | ack) == syn counter name inbound redirect to :{{.Inbound}}
	}

	# Reject direct connections to Envoy's ports: Envoy would connect to itself in a loop.
	chain input {
		type filter hook input priority -10; policy accept;
		tcp dport { {{.Outbound}}, {{.Inbound}} } ct status & dnat == 0 reject with tcp reset
	}
}
`

// drained is the ruleset that Remove leaves. The kernel translates redirected connections only
// while a table has a nat chain. Without one they would be reset.
func drained() string {
	return fmt.Sprintf(`%stable inet ashore {
	chain output {
		type nat hook output priority -110; policy accept;
	}
	chain input {
		type filter hook input priority -10; policy accept;
		tcp dport { %d, %d } ct status & dnat == 0 reject with tcp reset
	}
}
`, replace, outboundPort, inboundPort)
}
