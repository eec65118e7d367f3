package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/authz"
)

// Explain uses the active configuration. Errors: admin.ErrInvalid for the caller or the path;
// admin.ErrNotFound for an unknown target, admin.ErrConflict before there is any configuration.
func (a *API) Explain(ctx context.Context, r admin.ExplainRequest) (admin.Explanation, error) {
	c, err := a.current()
	if err != nil {
		return admin.Explanation{}, err
	}
	if r.Path != "" && !strings.HasPrefix(r.Path, "/") {
		return admin.Explanation{}, invalid("the path %.80q does not begin with /", r.Path)
	}
	from, err := authz.Caller(c, r.From)
	if err != nil {
		return admin.Explanation{}, invalid("%v", err)
	}
	revoked, notes := a.revokedPart(ctx, from)
	http := r.Method != "" || r.Path != "" || r.Host != ""
	found := a.judge(c, r.To, !http, authz.Request{From: from, Revoked: revoked, Port: uint32(r.Port),
		Method: strings.ToUpper(cmp.Or(r.Method, "GET")), Path: cmp.Or(r.Path, "/"), Host: r.Host})
	found = slices.DeleteFunc(found, func(f authz.Explained) bool {
		at := net.JoinHostPort(f.Address, strconv.FormatUint(uint64(f.Port), 10))
		return http && f.Request.TCP || len(r.Addresses) > 0 && !slices.Contains(r.Addresses, at)
	})
	host, _ := authz.SplitPort(r.To)
	for key := range c.Inputs().Services.From(registry.Key{Host: host}) {
		if len(found) > 0 || key.Host != host {
			break
		}
		if c.Inputs().Endpoints.At(key).Len() == 0 {
			return admin.Explanation{}, notFound("the service %s has no endpoints, so there is no "+
				"proxy whose policies could decide: \"ashorectl get services %s -o wide\" shows where it is defined", host, host)
		}
	}
	if len(found) == 0 {
		return admin.Explanation{}, notFound("nothing is known of %q with that port and protocol: "+
			"write the host of a service (web.example:80), a workload (shop/web), its address, or the ID of a proxy; a "+
			"method, a path and a host are for ports that speak HTTP; \"ashorectl get services\" lists ports", r.To)
	}
	out := explanation(from, found)
	out.Notes = append(out.Notes, notes...)
	return out, nil
}

// revokedPart names what of a caller is revoked beside its identity; empty: nothing.
func (a *API) revokedPart(ctx context.Context, from spiffe.ID) (revoked string, notes []string) {
	if a.Workloads == nil || from == (spiffe.ID{}) {
		return "", nil
	}
	joined, err := a.Workloads(ctx)
	if err != nil {
		notes = append(notes, "some workloads or revocations are not known: "+err.Error())
	}
	var names []string
	all := 0
	for _, w := range joined {
		if w.Identity != from.String() {
			continue
		}
		all++
		if w.Revoked {
			names = append(names, w.Name)
		}
	}
	list := strings.Join(names, ", ")
	switch {
	case all == 0:
		notes = append(notes, fmt.Sprintf(
			"no workload that has joined has the identity %s: \"ashorectl workload list\" shows who has which", from))
	case len(names) == all:
		revoked = "every workload with this identity (" + list + ")"
	case len(names) > 0:
		notes = append(notes, "some workloads with this identity are revoked, and refused: "+list)
	}
	return revoked, notes
}

// judge returns what the workloads and ports of to decide. Of a proxy tcp says whether it is asked
// about a connection.
func (a *API) judge(c *push.Context, to string, tcp bool, r authz.Request) []authz.Explained {
	for _, p := range a.Connected() {
		if p.ID == to || p.Node.ID == to {
			r.TCP = tcp
			return []authz.Explained{{Target: authz.Target{Namespace: p.Node.Namespace, Workload: p.Node.ID, Port: r.Port,
				MutualTLS: p.Node.Identity}, Decision: authz.Judge(c.Scope(c.Classify(p.Node)), r), Request: r}}
		}
	}
	return authz.Explain(c, r, to)
}

// explanation groups workloads and ports with equal results.
func explanation(from spiffe.ID, found []authz.Explained) admin.Explanation {
	out := admin.Explanation{From: cmp.Or(from.String(), "anonymous")}
	for _, f := range found {
		note := f.Name() + " is not known to take mutual TLS: callers reach it without an identity, " +
			"unless a DestinationRule says otherwise"
		if from != (spiffe.ID{}) && !f.MutualTLS && !slices.Contains(out.Notes, note) {
			out.Notes = append(out.Notes, note)
		}
		part := explainPart(f)
		out.Verdict = cmp.Or(out.Verdict, part.Verdict)
		if part.Verdict != out.Verdict {
			out.Verdict = string(authz.Depends)
		}
		same := slices.IndexFunc(out.Parts, func(o admin.ExplainPart) bool {
			return o.Call == part.Call && o.Verdict == part.Verdict && o.Reason == part.Reason &&
				slices.Equal(o.Steps, part.Steps)
		})
		if same < 0 {
			out.Parts = append(out.Parts, part)
		} else {
			out.Parts[same].At = append(out.Parts[same].At, part.At...)
		}
	}
	return out
}

// explainPart is the result at one port of a workload.
func explainPart(f authz.Explained) admin.ExplainPart {
	out := admin.ExplainPart{At: []string{place(f.Target)}, Call: "a connection", Verdict: string(f.Verdict),
		Reason: f.Reason, Closed: f.Closed, Steps: []admin.ExplainStep{}}
	if !f.Request.TCP {
		out.Call = f.Request.Method + " " + f.Request.Host + f.Request.Path
	}
	for _, s := range f.Steps {
		step := admin.ExplainStep{Policy: s.Policy.Key.String(), Action: s.Action, Matched: s.Rule >= 0 && !s.Unsure,
			Depends: s.Unsure, Rule: s.Rule, Decides: s.Decides, Why: s.Why}
		if s.DryRun {
			step.Action += " (dry run)"
		}
		if o := s.Policy.Origin; o.File != "" {
			step.Origin = o.File + ":" + strconv.Itoa(o.Line)
		}
		out.Steps = append(out.Steps, step)
	}
	return out
}

// place is a workload and its port.
func place(t authz.Target) string {
	if t.Port == 0 {
		return t.Name()
	}
	return fmt.Sprintf("%s:%d", t.Name(), t.Port)
}
