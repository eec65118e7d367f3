package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// serviceWatch writes how services, or endpoints, change. One goroutine owns it.
type serviceWatch struct {
	view serviceView
	tool *tool
	out  io.Writer
	// shown is what was written last, by service, and by endpoint within it: one without a name
	// where services are shown.
	shown map[[2]string]map[string]any
}

// watchServices writes what there is, and then what changes, until it is interrupted.
func (t *tool) watchServices(cmd *cobra.Command, v serviceView) error {
	c, err := t.client()
	if err != nil {
		return err
	}
	w := &serviceWatch{view: v, tool: t, out: cmd.OutOrStdout(), shown: map[[2]string]map[string]any{}}
	return blamed(cmd, c.Services(cmd.Context(), v.query, w.take))
}

// take writes what an event changes.
func (w *serviceWatch) take(e admin.ServiceEvent) error {
	if e.Event == admin.ServicesListed {
		return nil
	}
	key := [2]string{e.Service.Namespace, e.Service.Host}
	before, now := w.shown[key], w.things(e)
	w.shown[key] = now
	if len(now) == 0 {
		delete(w.shown, key)
	}
	return eachChange(before, now, func(a, b any) bool { return reflect.DeepEqual(a, b) }, w.write)
}

// things are what is shown of a service, by their names: itself, or its endpoints.
func (w *serviceWatch) things(e admin.ServiceEvent) map[string]any {
	out := map[string]any{}
	switch {
	case e.Event == admin.ServiceGone:
	case !w.view.query.Endpoints:
		out[""] = e.Service
	default:
		for _, ep := range endpointsOf([]admin.Service{e.Service}) {
			name := fmt.Sprintf("%s %s %s %s", ep.Address, endpointPorts(ep.Ports), ep.Workload, ep.From.Source)
			for i := 2; out[name] != nil; i++ { // a source has it twice
				name = fmt.Sprintf("%s %d", name, i)
			}
			out[name] = ep
		}
	}
	return out
}

// serviceChange is a change for programs: of a service, or an endpoint.
type serviceChange struct {
	// Event is "+", "~" or "-".
	Event    string           `json:"event"`
	Service  *admin.Service   `json:"service,omitempty"`
	Endpoint *serviceEndpoint `json:"endpoint,omitempty"`
}

func (w *serviceWatch) write(event string, v any) error {
	c, text := serviceChange{Event: event}, ""
	switch v := v.(type) {
	case admin.Service:
		c.Service, text = &v, w.serviceLine(v)
	case serviceEndpoint:
		c.Endpoint, text = &v, w.endpointLine(v)
	}
	switch w.tool.output {
	case jsonText:
		return json.NewEncoder(w.out).Encode(c)
	case yamlText:
		b, err := toYAML(c)
		if err == nil {
			_, err = fmt.Fprintf(w.out, "---\n%s", b)
		}
		return err
	}
	_, err := fmt.Fprintln(w.out, printable(event+" "+text))
	return err
}

func (w *serviceWatch) serviceLine(s admin.Service) string {
	if w.view.shown.names {
		return serviceName(s)
	}
	parts := []string{s.Namespace + "/" + s.Host, portsText(s.Ports), addressesText(s.Addresses, w.view.shown.wide),
		healthText(s.Health) + " healthy", sourcesText(s.Sources)}
	if w.view.shown.wide {
		parts = append(parts, s.Resolution, s.Location, orDash(strings.Join(s.Identities, ",")),
			declaredText(s.Sources))
	}
	return strings.Join(parts, "  ")
}

func (w *serviceWatch) endpointLine(e serviceEndpoint) string {
	parts := []string{e.HostNamespace + "/" + e.Host, e.Address, endpointPorts(e.Ports), e.Health,
		identityText(e.Endpoint, w.view.shown.wide), orDash(e.Locality), e.From.Source}
	if w.view.shown.wide {
		parts = append(parts, e.Namespace+"/"+orDash(e.Workload), orDash(e.TLSMode), labelsText(e.Labels),
			readFromText(e.From))
	}
	return strings.Join(parts, "  ")
}
