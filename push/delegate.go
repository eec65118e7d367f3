package push

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
)

// A route of a VirtualService may delegate to a VirtualService without hosts, whose routes then take
// its place. Delegates do not delegate further.
// Source: istio.io, HTTPRoute.delegate, and Istio, pilot/pkg/model/virtualservice.go.

// isDelegate reports whether a VirtualService has no hosts, so that it is used by others only.
func isDelegate(o *config.Object) bool { return len(o.Spec.(*networking.VirtualService).Hosts) == 0 }

// delegates reports whether a route names a delegate.
func delegates(r *networking.HTTPRoute) bool { return r.Delegate != nil }

// delegatesTo reports whether a route of vs names the VirtualService with that key.
func (vs *VirtualService) delegatesTo(key config.Key) bool {
	return slices.ContainsFunc(vs.own.Http, func(r *networking.HTTPRoute) bool {
		return delegates(r) && delegateKey(vs.Object, r.Delegate) == key
	})
}

// delegateKey is the key of a delegate of o. Its namespace is that of o unless it is named.
func delegateKey(o *config.Object, d *networking.Delegate) config.Key {
	return config.Key{Kind: config.VirtualService, Namespace: cmp.Or(d.Namespace, o.Namespace), Name: d.Name}
}

// delegate returns the delegate of o with the given key, and whether o sees it. Nil: there is none.
func (in Inputs) delegate(o *config.Object, key config.Key) (d *config.Object, visible bool) {
	d = in.Objects.At(key)
	if d == nil || !isDelegate(d) {
		return nil, false
	}
	to := exportTo(d.Spec.(*networking.VirtualService).ExportTo, in.Mesh.Config.GetDefaultVirtualServiceExportTo())
	return d, visibleTo(to, d.Namespace, o.Namespace)
}

// BadDelegate is a route that has no effect because of its delegate.
type BadDelegate struct {
	Path string // of the route
	Key  config.Key
	// Exists means that the delegate is only not exported to the namespace of the route.
	Exists bool
}

// BadDelegates returns the routes of vs whose delegate does not exist or is not exported to vs.
func (c *Context) BadDelegates(vs *VirtualService) (out []BadDelegate) {
	for i, r := range vs.own.Http {
		if !delegates(r) {
			continue
		}
		key := delegateKey(vs.Object, r.Delegate)
		if d, visible := c.in.delegate(vs.Object, key); !visible {
			out = append(out, BadDelegate{httpPath(i), key, d != nil})
		}
	}
	return out
}

func httpPath(i int) string { return fmt.Sprintf("spec.http[%d]", i) }

// mergeDelegates sets Spec. A route whose delegate does not exist or is not visible is left out.
func (vs *VirtualService) mergeDelegates(in Inputs) {
	vs.Spec = &networking.VirtualService{Hosts: vs.own.Hosts, Gateways: vs.own.Gateways, Tls: vs.own.Tls,
		Tcp: vs.own.Tcp, ExportTo: vs.own.ExportTo}
	for _, r := range vs.own.Http {
		if !delegates(r) {
			vs.Spec.Http = append(vs.Spec.Http, r)
			continue
		}
		o, visible := in.delegate(vs.Object, delegateKey(vs.Object, r.Delegate))
		if !visible {
			continue
		}
		d := &VirtualService{Object: o, own: resolveNames(o, in.Mesh.Domain)}
		vs.Delegates = append(vs.Delegates, d)
		for i, leaf := range d.own.Http {
			match, ok := mergeMatches(r.Match, leaf.Match)
			if !ok {
				vs.Contradicting = append(vs.Contradicting, Field{o, httpPath(i)})
				continue
			}
			merged := proto.Clone(r).(*networking.HTTPRoute)
			replaceFields(merged.ProtoReflect(), leaf.ProtoReflect())
			merged.Match, merged.Name, merged.Delegate = match, joinNames(r.Name, leaf.Name), nil
			vs.Spec.Http = append(vs.Spec.Http, merged)
		}
	}
}

// mergeMatches returns the matches of a route of a delegate. A request must fulfil one of root and
// one of leaf. ok is false if a match of leaf contradicts all of root.
func mergeMatches(root, leaf []*networking.HTTPMatchRequest) (out []*networking.HTTPMatchRequest, ok bool) {
	if len(root) == 0 || len(leaf) == 0 {
		return slices.Concat(root, leaf), true
	}
	for _, l := range leaf {
		before := len(out)
		for _, r := range root {
			if contradict(r, l) {
				continue
			}
			m := proto.Clone(r).(*networking.HTTPMatchRequest)
			replaceFields(m.ProtoReflect(), l.ProtoReflect())
			m.Name = joinNames(r.Name, l.Name)
			out = append(out, m)
		}
		if len(out) == before {
			return nil, false
		}
	}
	return out, true
}

func joinNames(root, leaf string) string {
	if root == "" || leaf == "" {
		return root + leaf
	}
	return root + "-" + leaf
}

// contradict reports whether leaf wants something that root excludes, as Istio decides it.
func contradict(root, leaf *networking.HTTPMatchRequest) bool {
	notWithin := func(r, l map[string]*networking.StringMatch) bool {
		for name, m := range l {
			if !within(m, r[name]) {
				return true
			}
		}
		return false
	}
	for name, value := range leaf.SourceLabels {
		if want, ok := root.SourceLabels[name]; ok && want != value {
			return true
		}
	}
	return !within(leaf.Uri, root.Uri) || !within(leaf.Scheme, root.Scheme) || !within(leaf.Method, root.Method) ||
		!within(leaf.Authority, root.Authority) || notWithin(root.Headers, leaf.Headers) ||
		notWithin(root.WithoutHeaders, leaf.WithoutHeaders) || notWithin(root.QueryParams, leaf.QueryParams) ||
		root.IgnoreUriCase != leaf.IgnoreUriCase || root.Port != 0 && leaf.Port != 0 && root.Port != leaf.Port ||
		root.SourceNamespace != "" && root.SourceNamespace != leaf.SourceNamespace ||
		len(root.Gateways) > 0 && slices.ContainsFunc(leaf.Gateways, func(g string) bool {
			return !slices.Contains(root.Gateways, g)
		})
}

// within reports whether every text that leaf matches is matched by root, as far as both are set.
// Two regular expressions are never compared.
func within(leaf, root *networking.StringMatch) bool {
	switch {
	case root == nil || leaf == nil:
		return true
	case root.GetExact() != "":
		return leaf.GetExact() == root.GetExact()
	case root.GetPrefix() != "":
		return strings.HasPrefix(leaf.GetExact()+leaf.GetPrefix(), root.GetPrefix())
	}
	return false
}
