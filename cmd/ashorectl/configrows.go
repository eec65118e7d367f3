package main

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// node is a part of an Envoy resource in protobuf's JSON, which leaves out zero values.
type node struct{ value any }

func readNode(text []byte) (n node, err error) {
	err = json.Unmarshal(text, &n.value)
	return n, err
}

// at returns the member at a path of names, "address.socketAddress"; empty if there is none.
func (n node) at(path string) node {
	for name := range strings.SplitSeq(path, ".") {
		members, _ := n.value.(map[string]any)
		n = node{members[name]}
	}
	return n
}

// text returns the text or number at a path.
func (n node) text(path string) string {
	if n = n.at(path); n.value == nil {
		return ""
	}
	return fmt.Sprint(n.value)
}

// list returns the elements of the list at a path.
func (n node) list(path string) (out []node) {
	values, _ := n.at(path).value.([]any)
	for _, v := range values {
		out = append(out, node{v})
	}
	return out
}

// texts returns the list of texts at a path.
func (n node) texts(path string) (out []string) {
	for _, e := range n.list(path) {
		out = append(out, fmt.Sprint(e.value))
	}
	return out
}

// object returns the object that something was made of, "NAME.NAMESPACE" as in istioctl.
// Source: Istio, filter metadata: /apis/networking.istio.io/v1/namespaces/NAMESPACE/KIND/NAME.
func (n node) object() string {
	parts := strings.Split(n.text("metadata.filterMetadata.istio.config"), "/")
	if len(parts) != 8 {
		return ""
	}
	return parts[7] + "." + parts[5]
}

func plainRows(r admin.DumpResource, _ node) []configRow {
	return []configRow{{cells: []any{r.Name, r.Version, r.Bytes}}}
}

func clusterRows(r admin.DumpResource, n node) []configRow {
	direction, port, subset, fqdn := "", "", "", r.Name
	if parts := strings.Split(r.Name, "|"); len(parts) == 4 {
		direction, port, subset, fqdn = parts[0], parts[1], parts[2], parts[3]
	}
	kind := cmp.Or(n.text("clusterType.name"), n.text("type"), "STATIC")
	return []configRow{{cells: []any{fqdn, port, subset, direction, kind, n.object()},
		fields: map[string]string{"fqdn": fqdn, "port": port, "subset": subset, "direction": direction}}}
}

func listenerRows(_ admin.DumpResource, n node) (out []configRow) {
	const address, number = "address.socketAddress.address", "address.socketAddress.portValue"
	at, port := n.text(address), n.text(number)
	for _, more := range n.list("additionalAddresses") {
		at += "," + more.text(address)
	}
	chains := n.list("filterChains")
	if last := n.at("defaultFilterChain"); last.value != nil {
		chains = append(chains, last)
	}
	kind := ""
	for _, c := range chains {
		k, to := c.destination()
		if to != "BlackHoleCluster" && !strings.Contains(kind, k) {
			kind = strings.TrimPrefix(kind+"+"+k, "+")
		}
		out = append(out, configRow{cells: []any{at, port, c.match(), to}})
	}
	for i := range out {
		out[i].fields = map[string]string{"address": at, "port": port, "type": kind}
	}
	return out
}

// match returns what connections a filter chain is for.
func (n node) match() string {
	m := n.at("filterChainMatch")
	var ranges []string
	for _, p := range m.list("prefixRanges") {
		ranges = append(ranges, p.text("addressPrefix")+"/"+cmp.Or(p.text("prefixLen"), "0"))
	}
	to := strings.Join(ranges, ",")
	if port := m.text("destinationPort"); port != "" {
		to = cmp.Or(to, "*") + ":" + port
	}
	var out []string
	for _, part := range [][2]string{{"SNI", strings.Join(m.texts("serverNames"), ",")},
		{"Trans", m.text("transportProtocol")}, {"App", strings.Join(m.texts("applicationProtocols"), ",")}, {"Addr", to}} {
		if part[1] != "" {
			out = append(out, part[0]+": "+part[1])
		}
	}
	return cmp.Or(strings.Join(out, "; "), "ALL")
}

// destination returns the kind of a filter chain, HTTP, TCP or empty, and where it leads.
func (n node) destination() (kind, to string) {
	for _, f := range n.list("filters") {
		c := f.at("typedConfig")
		switch path.Ext(c.text("@type")) {
		case ".HttpConnectionManager":
			var inline []string
			for _, h := range c.list("routeConfig.virtualHosts") {
				for _, r := range h.list("routes") {
					inline = append(inline, r.at("match").routeMatch())
				}
			}
			to = cmp.Or(c.text("rds.routeConfigName"), strings.Join(inline, ", "))
			if len(inline) > 0 {
				return "HTTP", "Inline Route: " + to
			}
			return "HTTP", "Route: " + to
		case ".TcpProxy":
			var names []string
			for _, w := range c.list("weightedClusters.clusters") {
				names = append(names, w.text("name"))
			}
			to = cmp.Or(c.text("cluster"), strings.Join(names, ", "))
			if !strings.HasSuffix(to, "Cluster") { // such as PassthroughCluster
				to = "Cluster: " + to
			}
			return "TCP", to
		}
	}
	return "", "Non-HTTP/Non-TCP"
}

// routeMatch returns the paths that a route is for.
func (n node) routeMatch() string {
	for _, m := range [][2]string{{"path", ""}, {"pathSeparatedPrefix", "PathPrefix:"}, {"safeRegex.regex", "regex "}} {
		if text := n.text(m[0]); text != "" {
			return m[1] + text
		}
	}
	return n.text("prefix") + "*"
}

func routeRows(r admin.DumpResource, n node) (out []configRow) {
	for _, h := range n.list("virtualHosts") {
		domains := h.texts("domains")
		if more := len(domains) - 2; more > 0 {
			domains = append(domains[:2], fmt.Sprintf("+ %d more", more))
		}
		row := func(match, object string) {
			out = append(out, configRow{cells: []any{r.Name, h.text("name"), strings.Join(domains, ", "), match, object}})
		}
		routes := h.list("routes")
		for _, x := range routes {
			row(x.at("match").routeMatch(), x.object())
		}
		if len(routes) == 0 {
			row("/*", "404")
		}
	}
	return out
}

func endpointRows(r admin.DumpResource, n node) (out []configRow) {
	for _, g := range n.list("endpoints") {
		place := g.at("locality")
		locality := strings.TrimRight(place.text("region")+"/"+place.text("zone")+"/"+place.text("subZone"), "/")
		for _, ep := range g.list("lbEndpoints") {
			at := ep.at("endpoint.address.socketAddress")
			address, port := at.text("address"), at.text("portValue")
			status := cmp.Or(ep.text("healthStatus"), "HEALTHY") // UNKNOWN, the zero value, counts as healthy
			out = append(out, configRow{cells: []any{address + ":" + port, status, locality, r.Name},
				fields: map[string]string{"address": address, "port": port, "cluster": r.Name, "status": status}})
		}
	}
	return out
}

// secretRows shows the certificates of a secret. Its key is not in the dump.
func secretRows(r admin.DumpResource, n node) (out []configRow) {
	kind, text := "Cert Chain", n.text("tlsCertificate.certificateChain.inlineBytes")
	if text == "" {
		kind, text = "CA", n.text("validationContext.trustedCa.inlineBytes")
	}
	rest, _ := base64.StdEncoding.DecodeString(text) // what is no certificate has no row
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		valid := time.Now().After(cert.NotBefore) && time.Now().Before(cert.NotAfter)
		out = append(out, configRow{cells: []any{r.Name, kind, "ACTIVE", valid, fmt.Sprintf("%x", cert.SerialNumber),
			cert.NotAfter.UTC().Format(time.RFC3339), cert.NotBefore.UTC().Format(time.RFC3339)}})
	}
	if len(out) == 0 {
		out = []configRow{{cells: []any{r.Name, "", "ACTIVE", "", "", "", ""}}}
	}
	return out
}

func filterRows(r admin.DumpResource, n node) []configRow {
	return []configRow{{cells: []any{r.Name, path.Base(n.text("typedConfig.@type"))}}}
}
