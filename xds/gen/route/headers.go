package route

import (
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// headerEdits are changes of headers as Envoy's. The zero value changes nothing.
type headerEdits struct {
	requestAdd, responseAdd       []*corev3.HeaderValueOption
	requestRemove, responseRemove []string
	// authority is what the request's host becomes; empty: it stays.
	authority string
}

// headerEditsOf reads changes of headers. Headers that begin with ":" and Host are not Envoy's to
// edit: of these only the authority of a request can be set, as a rewrite of the host.
// Source: istio.io, Headers; "set" replaces, "add" appends.
func headerEditsOf(h *networking.Headers) headerEdits {
	req, resp := h.GetRequest(), h.GetResponse()
	e := headerEdits{
		requestAdd:     append(headerOptions(req.GetSet(), false), headerOptions(req.GetAdd(), true)...),
		responseAdd:    append(headerOptions(resp.GetSet(), false), headerOptions(resp.GetAdd(), true)...),
		requestRemove:  editable(req.GetRemove()),
		responseRemove: editable(resp.GetRemove()),
	}
	for _, values := range []map[string]string{req.GetSet(), req.GetAdd()} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if e.authority == "" && (strings.EqualFold(name, authorityHeader) || strings.EqualFold(name, "host")) {
				e.authority = values[name]
			}
		}
	}
	return e
}

// apply adds the edits to those of a route.
func (e headerEdits) apply(r *routev3.Route) {
	r.RequestHeadersToAdd = append(r.RequestHeadersToAdd, e.requestAdd...)
	r.RequestHeadersToRemove = append(r.RequestHeadersToRemove, e.requestRemove...)
	r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, e.responseAdd...)
	r.ResponseHeadersToRemove = append(r.ResponseHeadersToRemove, e.responseRemove...)
}

// headerOptions lists values by name.
func headerOptions(values map[string]string, appending bool) []*corev3.HeaderValueOption {
	action := corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	if appending {
		action = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	}
	var out []*corev3.HeaderValueOption
	for _, name := range editable(slices.Sorted(maps.Keys(values))) {
		out = append(out, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: name, Value: values[name]},
			AppendAction: action,
		})
	}
	return out
}

// editable leaves those names that Envoy lets a route edit.
func editable(names []string) []string {
	var out []string
	for _, n := range names {
		if !strings.HasPrefix(n, ":") && !strings.EqualFold(n, "host") {
			out = append(out, n)
		}
	}
	return out
}
