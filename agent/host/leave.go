package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// leaveTimeout bounds how long an agent may take to drain and end.
const leaveTimeout = 2 * time.Minute

// Leave removes a workload from the mesh, and everything of it from the machine. It can be
// repeated.
func (h *Host) Leave(ctx context.Context, state string) error {
	state = filepath.Clean(state)
	if !h.Runs(state) { // root would delete a folder that is not the agent's
		return fmt.Errorf("%s is not in %s", state, h.Folder)
	}
	main := h.main() == state
	if joined(state) {
		if err := h.As(func() error { return agent.Leave(ctx, state, leaveTimeout) }); err != nil {
			return fmt.Errorf("end the agent and remove the identity: %w", err)
		}
	}
	if main { // not earlier: callers with mutual TLS would reach the application's own port
		if err := h.removeRules(ctx); err != nil {
			return fmt.Errorf("remove the interception rules: %w", err)
		}
	}
	if err := h.stop(ctx, state); err != nil {
		return err
	}
	err := os.RemoveAll(state)
	if main {
		err = errors.Join(err, os.Remove(filepath.Join(h.Folder, agent.MainLink)))
	}
	return err
}

// Clean is Leave on a machine where no workload has joined: an earlier Leave or Join may have been
// interrupted.
func (h *Host) Clean(ctx context.Context) error {
	if main := h.main(); main != "" {
		return h.Leave(ctx, main)
	}
	return h.removeRules(ctx)
}

// removeRules removes the rules, also from the next boot.
func (h *Host) removeRules(ctx context.Context) error {
	return errors.Join(h.Rules.Delete(ctx), h.Systemd.Run(ctx, "disable", "--quiet", "--now", interceptUnit))
}

// stop stops the agent of a workload and its Envoy, and removes the shared memory.
func (h *Host) stop(ctx context.Context, state string) error {
	unit := h.unit(state)
	workload := filepath.Base(state)
	if unit == mainUnit {
		workload = ""
	}
	err := h.Systemd.Run(ctx, "disable", "--quiet", "--now", unit)
	if unit == mainUnit { // else a DNS query would start the agent again
		err = errors.Join(err, h.Systemd.Run(ctx, "stop", dnsSocket, unit))
	}
	for _, verb := range []string{"stop", "reset-failed"} { // of several epochs the older ones end by a signal
		err = errors.Join(err, h.Systemd.Run(ctx, append([]string{verb}, h.envoys(state)...)...))
	}
	memory := filepath.Join(h.SharedMemory, envoy.SharedMemory(agent.UnitFolder, workload))
	return errors.Join(err, wholefile.Remove(memory))
}
