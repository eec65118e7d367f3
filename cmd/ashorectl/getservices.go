package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// registryNoun says whether kind is one of what registries know, and not of what operators write:
// services, or else endpoints.
func registryNoun(kind string) (endpoints, ok bool) {
	switch strings.ToLower(kind) {
	case "services", "service", "svc":
		return false, true
	case "endpoints", "endpoint", "ep":
		return true, true
	}
	return false, false
}

// registryNouns are those, by the names that people type.
func registryNouns() []string { return []string{"services", "endpoints"} }

// serviceView is what is shown of services, and how.
type serviceView struct {
	query admin.ServiceQuery
	shown namesOrFormat
}

// getServices shows services or endpoints. Errors of usage: what makes sense for objects alone.
func (t *tool) getServices(cmd *cobra.Command, v serviceView, store bool) error {
	switch {
	case store:
		return usage(cmd, errors.New("--store is for what operators write: services and endpoints are what all sources make of it"))
	case v.query.Endpoints && v.shown.names:
		return usage(cmd, errors.New("endpoints have no names: want -o table, wide, json or yaml"))
	case v.query.Watch:
		return t.watchServices(cmd, v)
	}
	found, err := ask(t, cmd, v.collect)
	switch {
	case err != nil:
		return err
	case v.query.Endpoints:
		return t.output.write(cmd.OutOrStdout(), endpointsOf(found),
			func(w io.Writer) error { return endpointTable(w, endpointsOf(found), v.shown.wide) })
	case v.shown.names:
		return writeServiceNames(cmd.OutOrStdout(), found)
	}
	return t.output.write(cmd.OutOrStdout(), found, func(w io.Writer) error {
		return serviceTable(w, found,
			v.shown.wide)
	})
}

// collect asks for services; never nil.
func (v serviceView) collect(c *admin.Client, ctx context.Context) ([]admin.Service, error) {
	out := []admin.Service{}
	err := c.Services(ctx, v.query, func(e admin.ServiceEvent) error {
		if e.Event != admin.ServiceGone { // it went while the others were told
			out = append(out, e.Service)
		}
		return nil
	})
	return out, err
}

// serviceEndpoint is an endpoint with the service that it belongs to.
type serviceEndpoint struct {
	Host          string `json:"host"`
	HostNamespace string `json:"hostNamespace"`
	admin.Endpoint
}

// endpointsOf are those of services; never nil.
func endpointsOf(all []admin.Service) []serviceEndpoint {
	out := []serviceEndpoint{}
	for _, s := range all {
		for _, ep := range s.Endpoints {
			out = append(out, serviceEndpoint{s.Host, s.Namespace, ep})
		}
	}
	return out
}

func writeServiceNames(w io.Writer, all []admin.Service) error {
	for _, s := range all {
		if _, err := fmt.Fprintln(w, serviceName(s)); err != nil {
			return err
		}
	}
	return nil
}

func serviceName(s admin.Service) string { return printable("service " + s.Namespace + "/" + s.Host) }

func serviceTable(w io.Writer, all []admin.Service, wide bool) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	header := []string{"NAMESPACE", "HOST", "PORTS", "ADDRESS", "HEALTHY", "FROM"}
	if wide {
		header = append(header, "RESOLUTION", "LOCATION", "EXPORTED TO", "IDENTITIES", "READ FROM")
	}
	var rows [][]string
	for _, s := range all {
		row := []string{s.Namespace, s.Host, portsText(s.Ports), addressesText(s.Addresses, wide), healthText(s.Health),
			sourcesText(s.Sources)}
		if wide {
			row = append(row, s.Resolution, s.Location, orDash(strings.Join(s.ExportTo, ",")),
				orDash(strings.Join(s.Identities, ",")), declaredText(s.Sources))
		}
		rows = append(rows, row)
	}
	return columns(w, header, rows)
}

// portsText is "80/HTTP,5432/TCP"; what proxies find out by themselves is "8080/?".
func portsText(ports []admin.ServicePort) string {
	var out []string
	for _, p := range ports {
		protocol := p.Protocol
		if protocol == "UNKNOWN" {
			protocol = "?"
		}
		out = append(out, strconv.Itoa(int(p.Number))+"/"+protocol)
	}
	return strings.Join(out, ",")
}

// addressesText are all addresses, or the first, and how many more there are.
func addressesText(all []string, wide bool) string {
	if len(all) < 2 || wide {
		return orDash(strings.Join(all, ","))
	}
	return fmt.Sprintf("%s +%d", all[0], len(all)-1)
}

// healthText is "2/3": so many of so many endpoints are healthy.
func healthText(h admin.HealthCount) string { return fmt.Sprintf("%d/%d", h.Healthy, h.Total()) }

// sourcesText names sources, the deciding one first.
func sourcesText(all []admin.ServiceSource) string {
	var out []string
	for _, s := range all {
		out = append(out, s.Source)
	}
	return orDash(strings.Join(out, ","))
}

// declaredText is where a service was declared: of each source that does.
func declaredText(all []admin.ServiceSource) string {
	var out []string
	for _, s := range all {
		if s.Object != "" {
			out = append(out, readFromText(s.Place))
		}
	}
	return orDash(strings.Join(out, ","))
}

// readFromText is where something was read: its object, and the file.
func readFromText(p admin.Place) string {
	if p.File == "" {
		return cmp.Or(p.Object, p.Source)
	}
	return fmt.Sprintf("%s (%s:%d)", p.Object, filepath.Clean(p.File), p.Line)
}

func endpointTable(w io.Writer, all []serviceEndpoint, wide bool) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	header := []string{"NAMESPACE", "HOST", "ADDRESS", "PORTS", "HEALTH", "IDENTITY", "LOCALITY", "FROM"}
	if wide {
		header = append(header, "WORKLOAD", "NETWORK", "WEIGHT", "TLS", "LABELS", "READ FROM")
	}
	var rows [][]string
	for _, e := range all {
		row := []string{e.HostNamespace, e.Host, e.Address, endpointPorts(e.Ports), e.Health,
			identityText(e.Endpoint, wide), orDash(e.Locality), orDash(e.From.Source)}
		if wide {
			row = append(row, e.Namespace+"/"+orDash(e.Workload), orDash(e.Network), strconv.Itoa(int(e.Weight)),
				orDash(e.TLSMode), labelsText(e.Labels), readFromText(e.From))
		}
		rows = append(rows, row)
	}
	return columns(w, header, rows)
}

// endpointPorts is "8080", and "80:8080" where the service's port has another number.
func endpointPorts(ports []admin.EndpointPort) string {
	var out []string
	for _, p := range ports {
		text := strconv.Itoa(int(p.Number))
		if p.Service != p.Number {
			text = strconv.Itoa(int(p.Service)) + ":" + text
		}
		out = append(out, text)
	}
	return orDash(strings.Join(out, ","))
}

// identityText is the SPIFFE ID, or for short the namespace and service account in it.
func identityText(e admin.Endpoint, wide bool) string {
	if _, short, ok := strings.Cut(e.Identity, "/ns/"); ok && !wide {
		return strings.Replace(short, "/sa/", "/", 1)
	}
	return orDash(e.Identity)
}

func labelsText(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return orDash(strings.Join(out, ","))
}

// completeServices offers the hosts of services: NAMESPACE/HOST, the host alone where the namespace
// is given.
func (t *tool) completeServices(ctx context.Context, namespace string) ([]string, cobra.ShellCompDirective) {
	return offer(ctx, t, serviceView{query: admin.ServiceQuery{Namespace: namespace}}.collect,
		func(found []admin.Service) []string {
			var out []string
			for _, s := range found {
				name := s.Host
				if namespace == "" {
					name = s.Namespace + "/" + name
				}
				out = append(out, name)
			}
			return out
		})
}
