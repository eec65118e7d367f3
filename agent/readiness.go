package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/internal/task"
)

// readiness finds out whether Envoy is ready. It belongs to one goroutine.
type readiness struct {
	admin   *envoy.Admin
	envoy   envoy.Runner
	log     hclog.Logger
	problem func() string // why no control plane is connected; empty: one is

	configured int   // the run of Envoy that has its configuration
	failures   int   // checks in a row that failed
	result     error // why Envoy is not ready; nil: it is
}

func newReadiness(a *envoy.Admin, e envoy.Runner, problem func() string, log hclog.Logger) *readiness {
	return &readiness{admin: a, envoy: e, problem: problem, log: log, result: errStarting}
}

// errStarting is the result before the first check.
var errStarting = errors.New("Envoy is starting")

// unreadyAfter is the number of failed checks in a row that make a ready Envoy unready. A busy
// Envoy may answer late, and one that ended may be back at once.
const unreadyAfter = 3

// check asks Envoy and stores the result. It returns what it found, even if unreadyAfter does not
// count it yet.
func (s *readiness) check(ctx context.Context) error {
	if s.envoy.State().Replacing { // the previous Envoy serves until the next one does
		return s.result
	}
	err := s.examine(ctx)
	if s.failures++; err == nil {
		s.failures = 0
	}
	was := s.result == nil
	switch {
	case ctx.Err() != nil || was && err != nil && s.failures < unreadyAfter:
		return err
	case !was && err == nil:
		s.log.Info("envoy is ready")
	case was && err != nil:
		s.log.Warn("envoy is not ready any more", "reason", err)
	}
	s.result = err
	return err
}

func (s *readiness) examine(ctx context.Context) error {
	state := s.envoy.State()
	run := state.Runs
	if _, err := s.admin.Do(ctx, http.MethodGet, "/ready"); err != nil {
		// Its statistics would say more, but reading them delays the thread that loads the
		// configuration.
		problem := s.problem()
		switch {
		case state.Problem != "":
			return fmt.Errorf("Envoy does not run: %s", state.Problem)
		case problem != "":
			return fmt.Errorf("Envoy waits for its configuration: %s", problem)
		}
		return errors.New("Envoy is starting: it has not accepted its configuration yet")
	}
	if s.configured == run {
		return nil
	}
	// Envoy is live even if it rejected its first configuration.
	if err := s.waiting(ctx); err != nil {
		return err
	}
	s.configured = run
	return nil
}

// waiting returns what Envoy has not received yet; nil if it has everything.
func (s *readiness) waiting(ctx context.Context) error {
	const clusters, listeners = "cluster_manager.cds.update_success", "listener_manager.lds.update_success"
	const workers = "listener_manager.workers_started"
	stats, err := s.admin.Stats(ctx,
		`^(cluster_manager\.cds\.update_success|listener_manager\.(lds\.update_success|workers_started))$`)
	switch {
	case err != nil:
		return fmt.Errorf("Envoy is starting: %w", err)
	case stats[clusters] == 0:
		return errors.New("Envoy has accepted no clusters from the control plane yet")
	case stats[listeners] == 0:
		return errors.New("Envoy has accepted no listeners from the control plane yet")
	case stats[workers] == 0:
		return errors.New("Envoy is starting its listeners")
	}
	return nil
}

// The times between two looks at Envoy's readiness, before it is ready and after.
const (
	readinessSoon  = 200 * time.Millisecond
	readinessLater = time.Second
)

// watchReadiness checks Envoy until ctx ends, and reports the result.
func (a *Agent) watchReadiness(ctx context.Context) error {
	for begun := time.Now(); ; {
		wait := readinessLater
		err := a.ready.check(ctx)
		intercepted := a.settings.intercepted()
		a.health.setProxy(a.ready.result, intercepted)
		a.notify(err, time.Since(begun))
		if err != nil || !intercepted { // else the rules are being installed
			wait = readinessSoon
		}
		if !task.Sleep(ctx, wait) {
			return nil
		}
	}
}
