package main

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// The types in this file are the parts of Envoy's resources that tables show, in protobuf's JSON.

type envoyAddress struct {
	SocketAddress struct {
		Address   string
		PortValue uint32
	}
}

func (a envoyAddress) host() string { return a.SocketAddress.Address }
func (a envoyAddress) port() string { return strconv.Itoa(int(a.SocketAddress.PortValue)) }

// envoyMetadata names the object that something was made of.
type envoyMetadata struct {
	FilterMetadata struct {
		Istio struct{ Config string }
	}
}

// object returns "NAME.NAMESPACE", as istioctl shows it. Source: Istio, filter metadata "config":
// /apis/networking.istio.io/v1/namespaces/NAMESPACE/KIND/NAME.
func (m envoyMetadata) object() string {
	parts := strings.Split(m.FilterMetadata.Istio.Config, "/")
	if len(parts) != 8 {
		return ""
	}
	return parts[7] + "." + parts[5]
}

func plainRows(r admin.DumpResource) ([]configRow, error) {
	return []configRow{{cells: []any{r.Name, r.Version, r.Bytes}}}, nil
}

func clusterRows(r admin.DumpResource) ([]configRow, error) {
	var c struct {
		Name, Type  string
		ClusterType struct{ Name string }
		Metadata    envoyMetadata
	}
	err := json.Unmarshal(r.Body, &c)
	direction, port, subset, fqdn := "", "", "", c.Name
	if parts := strings.Split(c.Name, "|"); len(parts) == 4 {
		direction, port, subset, fqdn = parts[0], parts[1], parts[2], parts[3]
	}
	return []configRow{{
		cells:  []any{fqdn, port, subset, direction, cmp.Or(c.ClusterType.Name, c.Type, "STATIC"), c.Metadata.object()},
		fields: map[string]string{"fqdn": fqdn, "port": port, "subset": subset, "direction": direction},
	}}, err
}

type envoyFilterChain struct {
	FilterChainMatch struct {
		DestinationPort                   uint32
		ServerNames, ApplicationProtocols []string
		TransportProtocol                 string
		PrefixRanges                      []struct {
			AddressPrefix string
			PrefixLen     int
		}
	}
	Filters []struct {
		TypedConfig struct {
			Type        string `json:"@type"`
			Rds         struct{ RouteConfigName string }
			RouteConfig struct {
				Name         string
				VirtualHosts []envoyVirtualHost
			}
			Cluster          string
			WeightedClusters struct {
				Clusters []struct{ Name string }
			}
		}
	}
}

// match returns what connections a filter chain is for.
func (c envoyFilterChain) match() string {
	m := c.FilterChainMatch
	var out []string
	add := func(name string, values ...string) {
		if text := strings.Join(values, ","); text != "" {
			out = append(out, name+": "+text)
		}
	}
	add("SNI", m.ServerNames...)
	add("Trans", m.TransportProtocol)
	add("App", m.ApplicationProtocols...)
	var prefixes []string
	for _, p := range m.PrefixRanges {
		prefixes = append(prefixes, fmt.Sprintf("%s/%d", p.AddressPrefix, p.PrefixLen))
	}
	port := ""
	if m.DestinationPort != 0 {
		port = fmt.Sprintf(":%d", m.DestinationPort)
		prefixes = append(prefixes, "*")[:max(1, len(prefixes))]
	}
	if len(prefixes) > 0 {
		add("Addr", strings.Join(prefixes, ",")+port)
	}
	return cmp.Or(strings.Join(out, "; "), "ALL")
}

// destination returns the kind of a filter chain, HTTP, TCP or empty, and where it leads.
func (c envoyFilterChain) destination() (kind, to string) {
	for _, f := range c.Filters {
		x := f.TypedConfig
		switch {
		case strings.HasSuffix(x.Type, ".HttpConnectionManager"):
			if x.Rds.RouteConfigName != "" {
				return "HTTP", "Route: " + x.Rds.RouteConfigName
			}
			return "HTTP", "Inline Route: " + inlineRoute(x.RouteConfig.VirtualHosts)
		case strings.HasSuffix(x.Type, ".TcpProxy"):
			names := []string{}
			for _, w := range x.WeightedClusters.Clusters {
				names = append(names, w.Name)
			}
			to = cmp.Or(x.Cluster, strings.Join(names, ", "))
			if !strings.HasSuffix(to, "Cluster") { // such as PassthroughCluster
				to = "Cluster: " + to
			}
			return "TCP", to
		}
	}
	return "", "Non-HTTP/Non-TCP"
}

func inlineRoute(hosts []envoyVirtualHost) string {
	var out []string
	for _, h := range hosts {
		for _, r := range h.Routes {
			out = append(out, r.Match.text())
		}
	}
	return strings.Join(out, ", ")
}

func listenerRows(r admin.DumpResource) ([]configRow, error) {
	var l struct {
		Address             envoyAddress
		AdditionalAddresses []struct{ Address envoyAddress }
		FilterChains        []envoyFilterChain
		DefaultFilterChain  *envoyFilterChain
	}
	err := json.Unmarshal(r.Body, &l)
	addresses := []string{l.Address.host()}
	for _, a := range l.AdditionalAddresses {
		addresses = append(addresses, a.Address.host())
	}
	chains := l.FilterChains
	if l.DefaultFilterChain != nil {
		chains = append(chains, *l.DefaultFilterChain)
	}
	var out []configRow
	kinds := map[string]bool{}
	at := strings.Join(addresses, ",")
	for _, c := range chains {
		kind, to := c.destination()
		if to != "BlackHoleCluster" {
			kinds[kind] = true
		}
		out = append(out, configRow{cells: []any{at, l.Address.port(), c.match(), to}})
	}
	kind := ""
	for _, k := range []string{"HTTP", "TCP"} {
		if kinds[k] {
			kind += "+" + k
		}
	}
	for i := range out {
		out[i].fields = map[string]string{"address": at, "port": l.Address.port(), "type": strings.TrimPrefix(kind, "+")}
	}
	return out, err
}

type envoyVirtualHost struct {
	Name    string
	Domains []string
	Routes  []struct {
		Match    envoyRouteMatch
		Metadata envoyMetadata
	}
}

type envoyRouteMatch struct {
	Prefix, Path, PathSeparatedPrefix string
	SafeRegex                         struct{ Regex string }
}

func (m envoyRouteMatch) text() string {
	switch {
	case m.Path != "":
		return m.Path
	case m.PathSeparatedPrefix != "":
		return "PathPrefix:" + m.PathSeparatedPrefix
	case m.SafeRegex.Regex != "":
		return "regex " + m.SafeRegex.Regex
	}
	return m.Prefix + "*"
}

func routeRows(r admin.DumpResource) ([]configRow, error) {
	var c struct{ VirtualHosts []envoyVirtualHost }
	err := json.Unmarshal(r.Body, &c)
	var out []configRow
	for _, h := range c.VirtualHosts {
		domains := h.Domains
		if len(domains) > 2 {
			domains = append(domains[:2:2], fmt.Sprintf("+ %d more", len(h.Domains)-2))
		}
		row := func(match, object string) {
			out = append(out, configRow{cells: []any{r.Name, h.Name, strings.Join(domains, ", "), match, object}})
		}
		for _, x := range h.Routes {
			row(x.Match.text(), x.Metadata.object())
		}
		if len(h.Routes) == 0 {
			row("/*", "404")
		}
	}
	return out, err
}

func endpointRows(r admin.DumpResource) ([]configRow, error) {
	var a struct {
		Endpoints []struct {
			Locality    struct{ Region, Zone, SubZone string }
			LbEndpoints []struct {
				Endpoint     struct{ Address envoyAddress }
				HealthStatus string
			}
		}
	}
	err := json.Unmarshal(r.Body, &a)
	var out []configRow
	for _, g := range a.Endpoints {
		locality := strings.TrimRight(g.Locality.Region+"/"+g.Locality.Zone+"/"+g.Locality.SubZone, "/")
		for _, ep := range g.LbEndpoints {
			at, status := ep.Endpoint.Address, cmp.Or(ep.HealthStatus, "HEALTHY") // UNKNOWN counts as healthy
			out = append(out, configRow{cells: []any{at.host() + ":" + at.port(), status, locality, r.Name},
				fields: map[string]string{"address": at.host(), "port": at.port(), "cluster": r.Name, "status": status}})
		}
	}
	return out, err
}

// secretRows shows the certificates of a secret. Its key is not in the dump.
func secretRows(r admin.DumpResource) ([]configRow, error) {
	var s struct {
		TlsCertificate struct {
			CertificateChain struct{ InlineBytes []byte }
		}
		ValidationContext struct {
			TrustedCa struct{ InlineBytes []byte }
		}
	}
	err := json.Unmarshal(r.Body, &s)
	kind, rest := "Cert Chain", s.TlsCertificate.CertificateChain.InlineBytes
	if len(rest) == 0 {
		kind, rest = "CA", s.ValidationContext.TrustedCa.InlineBytes
	}
	var out []configRow
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		valid := now.After(cert.NotBefore) && now.Before(cert.NotAfter)
		out = append(out, configRow{cells: []any{r.Name, kind, "ACTIVE", valid, fmt.Sprintf("%x", cert.SerialNumber),
			cert.NotAfter.UTC().Format(time.RFC3339), cert.NotBefore.UTC().Format(time.RFC3339)}})
		if kind == "Cert Chain" {
			break // the leaf
		}
	}
	if len(out) == 0 {
		out = []configRow{{cells: []any{r.Name, "", "ACTIVE", "", "", "", ""}}}
	}
	return out, err
}

func filterRows(r admin.DumpResource) ([]configRow, error) {
	var f struct {
		TypedConfig struct {
			Type string `json:"@type"`
		}
	}
	err := json.Unmarshal(r.Body, &f)
	return []configRow{{cells: []any{r.Name, path.Base(f.TypedConfig.Type)}}}, err
}
