package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/agent/envoy"
)

// readiness holds whether Envoy is ready. watchReadiness asks Envoy. Probes get the latest result
// without waiting.
type readiness struct {
	admin   *envoy.Admin
	envoy   envoy.Runner
	log     hclog.Logger
	trouble func() string // why no control plane is connected; empty: one is

	// The following fields belong to the goroutine that calls check.
	configured int // the run of Envoy that has its configuration
	failures   int // checks in a row that failed

	mu       sync.Mutex
	draining bool  // guarded by mu
	result   error // guarded by mu: why Envoy is not ready; nil: it is
}

func newReadiness(a *envoy.Admin, e envoy.Runner, trouble func() string, log hclog.Logger) *readiness {
	return &readiness{admin: a, envoy: e, trouble: trouble, log: log,
		result: errors.New("Envoy is starting")}
}

// state returns nil if Envoy serves with a configuration of the control plane, else what is
// missing.
func (s *readiness) state() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errors.New("draining: this proxy is about to end")
	}
	return s.result
}

// drain makes Envoy not ready from now on.
func (s *readiness) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

// unreadyAfter is the number of failed checks in a row that make a ready Envoy unready. A busy
// Envoy may answer late, and one that ended may be back at once.
const unreadyAfter = 3

// check asks Envoy and stores the result. It returns what it found, even if unreadyAfter does not
// count it yet.
func (s *readiness) check(ctx context.Context) error {
	if s.envoy.State().Replacing { // the previous Envoy serves until the next one does
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.result
	}
	err := s.examine(ctx)
	if s.failures++; err == nil {
		s.failures = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.result == nil
	switch {
	case ctx.Err() != nil || was && err != nil && s.failures < unreadyAfter:
		return err
	case !was && err == nil:
		s.log.Info("envoy is ready")
	case was && err != nil && !s.draining:
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
		trouble := s.trouble()
		switch {
		case state.Trouble != "":
			return fmt.Errorf("Envoy does not run: %s", state.Trouble)
		case trouble != "":
			return fmt.Errorf("Envoy waits for its configuration: %s", trouble)
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

// The counters of accepted and refused configurations.
const (
	statClusters  = "cluster_manager.cds.update_success"
	statListeners = "listener_manager.lds.update_success"
	statWorkers   = "listener_manager.workers_started"
)

// waiting returns what Envoy has not received yet; nil if it has everything.
func (s *readiness) waiting(ctx context.Context) error {
	stats, err := s.admin.Stats(ctx,
		`^(cluster_manager\.cds\.update_success|listener_manager\.(lds\.update_success|workers_started))$`)
	if err != nil {
		return fmt.Errorf("Envoy is starting: %w", err)
	}
	var missing []string
	for _, m := range []struct{ stat, name string }{{statClusters, "clusters"}, {statListeners, "listeners"}} {
		if stats[m.stat] == 0 {
			missing = append(missing, m.name)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("Envoy has accepted no %s from the control plane yet", strings.Join(missing, " and no "))
	case stats[statWorkers] == 0:
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
		a.reportReadiness()
		a.notify(err, time.Since(begun))
		if err != nil || !a.settings.intercepted() { // else the rules are being installed
			wait = readinessSoon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.envoy.Ended():
		case <-time.After(wait):
		}
	}
}

// proxyUnready is the prefix of the reason of a workload that is unhealthy because of its Envoy.
const proxyUnready = "the proxy is not ready: "

// reportReadiness updates the workload's health.
func (a *Agent) reportReadiness() {
	err := a.ready.state()
	switch {
	case err != nil:
		a.health.setProxy(proxyUnready + err.Error())
	case !a.settings.intercepted():
		a.health.setProxy(notIntercepted)
	default:
		a.health.setProxy("")
	}
}
