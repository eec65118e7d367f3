package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

// explainer explains policies to operators, by what is at work now. Safe for concurrent use.
type explainer struct {
	// context is what proxies are served from; nil before there is any.
	context func() *push.Context
	// proxies are those that are connected.
	proxies func() []xds.ProxyStatus
}

var _ admin.Explainer = explainer{}

// Explain looks at what is at work now. Errors: admin.ErrInvalid for a caller that nobody can be, admin.ErrNotFound for a
// target that nobody knows, admin.ErrConflict before there is any configuration.
func (e explainer) Explain(_ context.Context, r admin.ExplainRequest) (admin.Explanation, error) {
	c := e.context()
	if c == nil {
		return admin.Explanation{}, admin.NewError(admin.ErrConflict, "there is no configuration yet")
	}
	from, err := e.caller(c, r.From)
	if err != nil {
		return admin.Explanation{}, err
	}
	call := push.Call{From: from, Port: uint32(r.Port), Method: cmp.Or(r.Method, "GET"), Path: cmp.Or(r.Path, "/")}
	var found []push.Explained
	if p, ok := e.proxy(r.To); ok {
		call.TCP = r.Method == "" && r.Path == ""
		found = []push.Explained{{Target: push.Target{Namespace: p.Namespace, Workload: p.ID, Port: call.Port, MutualTLS: p.Identity}, Judgement: c.Scope(c.Classify(p)).Judge(call), Call: call}}
	} else if found = c.Explain(call, r.To); len(found) == 0 {
		return admin.Explanation{}, admin.NewError(admin.ErrNotFound,
			fmt.Sprintf("nobody is %q: write the host of a service, web.example:80, a workload, shop/web, its address, or the ID of a proxy", r.To))
	}
	return explanation(from, r.To, found), nil
}

// caller finds out who asks: an identity, or the one that a connected proxy has proven. Errors: admin.ErrInvalid.
func (e explainer) caller(c *push.Context, text string) (spiffe.ID, error) {
	for _, p := range e.proxies() {
		if p.ID == text || p.Node.ID == text {
			return p.Who.Identity, nil
		}
	}
	id, err := c.Caller(text)
	if err != nil {
		return id, admin.NewError(admin.ErrInvalid, err.Error())
	}
	return id, nil
}

// proxy is the connected one of an ID.
func (e explainer) proxy(id string) (push.Node, bool) {
	for _, p := range e.proxies() {
		if p.ID == id || p.Node.ID == id {
			return p.Node, true
		}
	}
	return push.Node{}, false
}

// explanation puts what is said of several workloads into one answer: where they differ, it depends on the workload.
func explanation(from spiffe.ID, to string, found []push.Explained) admin.Explanation {
	first := found[0]
	out := admin.Explanation{From: cmp.Or(from.String(), "anonymous"), To: to, Verdict: string(first.Verdict), Reason: first.Reason, Steps: []admin.ExplainStep{}}
	differ := false
	for _, f := range found {
		differ = differ || f.Verdict != first.Verdict || f.Reason != first.Reason
		if from != (spiffe.ID{}) && !f.MutualTLS {
			out.Notes = append(out.Notes, f.Name()+" is not known to take mutual TLS: callers reach it without an identity, unless a DestinationRule says otherwise")
		}
	}
	if len(found) > 1 && differ {
		out.Verdict, out.Reason = string(push.Depends), "the workloads differ, the steps are those of "+place(first)
		for _, f := range found {
			out.Notes = append(out.Notes, place(f)+": "+string(f.Verdict)+": "+f.Reason)
		}
	}
	for _, s := range first.Steps {
		out.Steps = append(out.Steps, explainStep(s))
	}
	return out
}

// place is a workload and its port.
func place(f push.Explained) string {
	if f.Port == 0 {
		return f.Name()
	}
	return f.Name() + ":" + strconv.FormatUint(uint64(f.Port), 10)
}

func explainStep(s push.JudgedPolicy) admin.ExplainStep {
	out := admin.ExplainStep{Policy: s.Policy.Key.String(), Action: s.Action, Matched: s.Rule >= 0 && !s.Unsure, Rule: s.Rule, Decides: s.Decides, Why: s.Why}
	if s.DryRun {
		out.Action += " (dry run)"
	}
	if o := s.Policy.Origin; o.File != "" {
		out.Origin = o.File + ":" + strconv.Itoa(o.Line)
	}
	return out
}
