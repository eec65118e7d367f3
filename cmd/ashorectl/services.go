package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) getServices(cmd *cobra.Command, q getQuery, endpoints bool) error {
	if q.store {
		return usage(cmd, errors.New("--store is for objects: the store has no services or endpoints"))
	}
	found, err := t.findServices(cmd, admin.ServiceQuery{Namespace: q.namespace, Host: q.name, Endpoints: endpoints})
	if err != nil {
		return err
	}
	var items []item
	for _, s := range found {
		if endpoints {
			items = append(items, endpointItems(s)...)
		} else {
			items = append(items, serviceItem(s))
		}
	}
	if endpoints {
		return t.printItems(cmd, values(items),
			[]string{"NAMESPACE", "HOST", "ADDRESS", "PORTS", "HEALTH", "IDENTITY", "LOCALITY", "FROM"},
			[]string{"WORKLOAD", "NETWORK", "WEIGHT", "TLS", "LABELS", "READ FROM"}, items)
	}
	return t.printItems(cmd, values(items), []string{"NAMESPACE", "HOST", "PORTS", "ADDRESS", "HEALTHY", "FROM"},
		[]string{"RESOLUTION", "LOCATION", "EXPORTED TO", "READ FROM"}, items)
}

// findServices returns the services that q selects. If there is no such host, it returns those whose
// hosts begin with it, up to a dot: "web.shop" finds web.shop.svc.cluster.local.
func (t *tool) findServices(cmd *cobra.Command, q admin.ServiceQuery) ([]admin.Service, error) {
	found, notFound := ask(t, cmd, admin.CallServices, q)
	if !errors.Is(notFound, admin.ErrNotFound) {
		return found, notFound
	}
	short := strings.ToLower(q.Host) + "."
	q.Host = ""
	found, err := ask(t, cmd, admin.CallServices, q)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(s admin.Service) bool { return !strings.HasPrefix(s.Host, short) })
	if len(found) == 0 {
		return nil, notFound
	}
	return found, nil
}

func serviceItem(s admin.Service) item {
	var sources, declared []string
	for _, src := range s.Sources {
		sources = append(sources, src.Source)
		if src.Object != "" {
			declared = append(declared, declaredIn(src.Place))
		}
	}
	return item{name: "service " + s.Namespace + "/" + s.Host, value: s,
		cells: []any{s.Namespace, s.Host, servicePorts(s.Ports), strings.Join(s.Addresses, ","),
			fmt.Sprintf("%d/%d", s.Health.Healthy, s.Health.Total()), strings.Join(sources, ",")},
		wide: []any{s.Resolution, s.Location, strings.Join(s.ExportTo, ","), strings.Join(declared, ",")}}
}

// servicePorts returns "80/HTTP,5432/TCP"; "8080/?" has no declared protocol.
func servicePorts(ports []admin.ServicePort) string {
	var out []string
	for _, p := range ports {
		out = append(out, fmt.Sprintf("%d/%s", p.Number, strings.Replace(p.Protocol, "UNKNOWN", "?", 1)))
	}
	return strings.Join(out, ",")
}

// declaredIn returns an object and its file.
func declaredIn(p admin.Place) string {
	if p.File == "" {
		return cmp.Or(p.Object, p.Source)
	}
	return fmt.Sprintf("%s (%s:%d)", p.Object, filepath.Clean(p.File), p.Line)
}

// serviceEndpoint is an endpoint and its service.
type serviceEndpoint struct {
	Host          string `json:"host"`
	HostNamespace string `json:"hostNamespace"`
	admin.Endpoint
}

func endpointItems(s admin.Service) []item {
	var out []item
	for _, ep := range s.Endpoints {
		ports := endpointPorts(ep.Ports)
		identity := ep.Identity
		if _, short, ok := strings.Cut(identity, "/ns/"); ok {
			identity = strings.Replace(short, "/sa/", "/", 1)
		}
		out = append(out, item{name: "endpoint " + s.Host + " " + ep.Address,
			value: serviceEndpoint{s.Host, s.Namespace, ep},
			cells: []any{s.Namespace, s.Host, ep.Address, ports, endpointHealth(ep), identity, ep.Locality, ep.From.Source},
			wide: []any{ep.Namespace + "/" + cmp.Or(ep.Workload, "-"), ep.Network, ep.Weight, ep.TLSMode,
				pairs(ep.Labels, ","), declaredIn(ep.From)}})
	}
	return out
}

// endpointHealth returns "healthy", or "healthy, not served: 9000".
func endpointHealth(ep admin.Endpoint) string {
	var ports []string
	for _, p := range ep.NotServed {
		ports = append(ports, strconv.Itoa(int(p)))
	}
	if ep.Health != "healthy" || len(ports) == 0 {
		return ep.Health
	}
	return ep.Health + ", not served: " + strings.Join(ports, ",")
}

// endpointPorts returns "8080", or "80:8080" if the port of the service has another number.
func endpointPorts(ports []admin.EndpointPort) string {
	var out []string
	for _, p := range ports {
		text := strconv.Itoa(int(p.Number))
		if p.Service != p.Number {
			text = fmt.Sprintf("%d:%d", p.Service, p.Number)
		}
		out = append(out, text)
	}
	return strings.Join(out, ",")
}
