package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ashore-mesh/ashore/agent"
)

// leave takes a workload out of the mesh and leaves nothing of it on the machine. It can be
// repeated.
func (h *host) leave(ctx context.Context, state string, wait time.Duration) error {
	main := h.main() == state
	if main { // connections that go through Envoy stay until it ends
		if err := h.rules.Remove(ctx); err != nil {
			return fmt.Errorf("remove the interception rules: %w", err)
		}
	}
	if _, _, err := agent.JoinedAs(state); !errors.Is(err, agent.ErrNoIdentity) {
		if err := h.as(func() error { return agent.Leave(ctx, state, wait) }); err != nil {
			return fmt.Errorf("end the agent and remove the identity: %w", err)
		}
	}
	if err := h.stop(ctx, state); err != nil {
		return err
	}
	err := os.RemoveAll(state)
	if main {
		err = errors.Join(err, h.removeRules(ctx), os.Remove(filepath.Join(h.folder, agent.MainLink)))
	}
	return err
}

// leaveNothing is leave on a machine where no workload has joined: an earlier leave or join may
// have been interrupted.
func (h *host) leaveNothing(ctx context.Context, stdout io.Writer) error {
	if main := h.main(); main != "" {
		if err := h.leave(ctx, main, 0); err != nil {
			return err
		}
	} else if err := h.removeRules(ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintln(stdout, "no workload of this machine has joined; no rules are installed")
	return err
}
