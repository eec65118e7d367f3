package consul

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// report updates the status: how many entries are registered, and which services are not.
func (w *exportWriter) report() {
	var list []feed.Problem
	add := func(object, format string, args ...any) {
		list = append(list, feed.Problem{Severity: feed.Warning, Source: w.e.source(), Object: object, Text: fmt.Sprintf(format, args...)})
	}
	counts := map[refusal]int{}
	for _, r := range w.refused {
		counts[r]++
	}
	for r, n := range counts {
		hint := ""
		if strings.Contains(r.why, "Permission denied") {
			hint = ": give the token in tokenFile service:write for it, or exclude it by export.except"
		}
		add("Consul service "+r.name, "%d of its entries are not written, Consul refuses them (%s)%s", n, r.why, hint)
	}
	for name := range w.taken {
		if keys := w.set.keys[name]; len(keys) > 0 {
			add("service "+keys[0].Namespace+"/"+keys[0].Host, "is not registered in Consul: somebody else has registered a service %q; set export.name, or exclude it by export.except", name)
		}
	}
	for _, problems := range w.set.problems {
		for _, p := range problems {
			add(p.Object, "%s", p.Text)
		}
	}
	feed.SortProblems(list)
	entries := 0
	for _, ids := range w.registered {
		entries += len(ids)
	}
	w.e.setProblems(list, entries)
}

// setProblems replaces the problems of services, and logs new ones.
func (e *Exporter) setProblems(list []feed.Problem, entries int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, p := range list {
		same := func(o feed.Problem) bool { return o.Object == p.Object && o.Text == p.Text }
		if j := slices.IndexFunc(e.status.Problems, same); j >= 0 {
			list[i].Since = e.status.Problems[j].Since
			continue
		}
		list[i].Since = time.Now()
		e.cfg.Log.Warn("a service of the mesh is not registered in Consul", "problem", p.String())
	}
	e.status.Problems, e.status.Entries = list, entries
}

// setFailure notes why Consul cannot be written to; nil: it can. A single failure is not reported: Consul elects a leader now and then.
func (e *Exporter) setFailure(err error, failures int) {
	if err != nil && failures < 2 && !errors.Is(err, errForeignNode) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.failed
	if err == nil {
		if e.failed = nil; before != nil {
			e.cfg.Log.Info("the mesh's services are registered in Consul again")
		}
		return
	}
	e.failed = &feed.Problem{Severity: feed.Warning, Source: e.source(), Object: "export", Text: e.explain(err), Since: time.Now()}
	if before != nil {
		e.failed.Since = before.Since
	}
	if before == nil || before.Text != e.failed.Text {
		e.cfg.Log.Warn("the mesh's services cannot be registered in Consul; existing entries stay for the lease", "node", e.node, "error", e.failed.Text)
	}
}

// explain says what an error means, and what to do.
func (e *Exporter) explain(err error) string {
	switch {
	case errors.Is(err, errForeignNode), errors.Is(err, errSessionLost), errors.Is(err, errNoReason):
		return err.Error()
	case denied(err):
		return fmt.Sprintf("Consul refuses the token (%s): the one in tokenFile (%s) needs node %q and session %q with write, and service with write for the names that are registered",
			consulhttp.OneLine(err.Error()), cmp.Or(e.cfg.Options.TokenFile, "none is set"), e.node, e.node)
	}
	return e.client.explain(err)
}

func (e *Exporter) source() string { return "consul:" + e.cfg.Name }

// denied reports whether Consul refused for lack of permission.
func denied(err error) bool {
	var status api.StatusError
	if errors.As(err, &status) {
		return status.Code == http.StatusForbidden || status.Code == http.StatusUnauthorized
	}
	return err != nil && (strings.Contains(err.Error(), "Permission denied") || strings.Contains(err.Error(), "ACL not found"))
}
