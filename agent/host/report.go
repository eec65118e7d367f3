package host

import (
	"context"
	"fmt"
	"strings"

	"github.com/ashore-mesh/ashore/agent"
)

// Report adds a line about the units of a workload.
func (h *Host) Report(ctx context.Context, r *agent.Report, state string) error {
	s, err := agent.SavedSettings(state)
	if err != nil {
		return err
	}
	intercepted := s.Workload.Interception == "tproxy"
	names := []string{h.unit(state)}
	if intercepted {
		names = append(names, interceptUnit)
	}
	units, err := h.Systemd.Show(ctx, names...)
	if err != nil {
		return err
	}
	var texts, todos []string
	rulesTodo := ""
	if intercepted {
		if rules, err := h.Rules.Status(ctx); err != nil {
			return err
		} else if !rules.Installed {
			texts = append(texts, "the rules that bring traffic to Envoy are not installed")
			rulesTodo = "ashore-agent intercept install" // it needs Envoy
		}
	}
	for _, u := range units {
		texts = append(texts, u.String())
		if u.Active != "active" || u.File != "enabled" {
			todos = append(todos, fmt.Sprintf("systemctl enable --now %s (journalctl -u %s says why it does not run)",
				u.Name, u.Name))
		}
	}
	if rulesTodo != "" {
		todos = append(todos, rulesTodo)
	}
	r.Add("units", strings.Join(todos, "; "), strings.Join(texts, "; "))
	return nil
}
