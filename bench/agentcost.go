package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/bench/fleet"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// The targets of an agent.
const (
	agentMemory = 40.0  // MB above the bytes that it holds
	agentIdle   = 0.001 // of one core
	agentReady  = time.Second
)

const (
	// cacheTime is how long the agent has to write its cache file, and to settle.
	cacheTime = 15 * time.Second
	// readyPace is how often is asked whether it is ready.
	readyPace = 10 * time.Millisecond
	// restarts is how often it starts from its cache; the median counts.
	restarts = 5
)

// agentFigures are what one agent costs.
type agentFigures struct {
	envoy string // which one it runs
	// held is the size of its cache file, resident and private its memory, all in MB. Private is
	// resident without the program's own file.
	held, resident, private, peak float64
	idle                          float64 // of one core
	ready                         time.Duration
}

// agentCost measures the real agent with an Envoy that only takes its configuration, and with a
// real one.
func (b *bench) agentCost(ctx context.Context) (section, error) {
	envoys := []struct{ name, path string }{{"simulated", b.self}}
	if _, err := os.Stat(b.envoy); err == nil {
		envoys = append(envoys, struct{ name, path string }{"real", b.envoy})
	} else {
		say("there is no %s (-envoy; \"make tools\" fetches one): the agent is measured with a simulated Envoy alone",
			b.envoy)
	}
	if _, err := os.Stat(b.agent); err != nil {
		return section{}, fmt.Errorf("the program to measure (-ashore-agent; \"make build\" makes it): %w", err)
	}
	var all []agentFigures
	for _, e := range envoys {
		say("\nthe agent with a %s Envoy", e.name)
		f, err := b.oneAgent(ctx, e.path)
		if err != nil {
			return section{}, err
		}
		f.envoy = e.name
		all = append(all, f)
	}
	text, missed := agentTable(all)
	return section{text: text, missed: missed}, nil
}

// oneAgent joins a workload, lets it settle, looks at it idle, and starts it from its cache while
// ashored is away.
func (b *bench) oneAgent(ctx context.Context, envoy string) (agentFigures, error) {
	var f agentFigures
	plane, err := b.secureAshored(ctx)
	if err != nil {
		return f, err
	}
	a := &agentRun{bin: b.agent, envoy: envoy}
	err = a.join(ctx, plane, b.work)
	if err == nil {
		err = a.start(ctx)
	}
	if err != nil {
		return f, errors.Join(err, plane.stop())
	}
	f, err = a.look(ctx, b.idle)
	if err = errors.Join(err, a.agent.stop(), plane.stop()); err != nil {
		return f, err
	}
	f.ready, err = a.restart(ctx)
	return f, err
}

// agentAddress is that of the workload: no other one has its ports.
const agentAddress = "127.0.0.19"

// agentRun is one workload whose agent is measured.
type agentRun struct {
	bin, envoy, state string
	agent             *server // the process that runs now
}

// join gives it an identity.
func (a *agentRun) join(ctx context.Context, plane *server, work string) error {
	t, err := admin.NewClient(plane.socket).CreateToken(ctx, admin.TokenRequest{Group: joinGroup})
	if err != nil {
		return err
	}
	c, err := joinConfig(t)
	if err != nil {
		return err
	}
	if a.state, err = os.MkdirTemp(work, "agent"); err != nil {
		return err
	}
	c.Settings.State, c.Settings.Workload.Name, c.Settings.Workload.Addresses = a.state, "web-1", []string{agentAddress}
	_, err = agent.Join(ctx, c)
	return err
}

// start starts the agent and waits until it is ready.
func (a *agentRun) start(ctx context.Context) error {
	var err error
	a.agent, err = launch("ashore-agent", "", a.bin, io.Discard, "run", "--state", a.state, "--envoy", a.envoy, "--set",
		"envoy.concurrency=1",
		"--set", "drain.maximum=1s")
	if err != nil {
		return err
	}
	url := "http://" + agentAddress + ":15020/healthz/ready"
	client := &http.Client{Timeout: time.Second}
	for began := time.Now(); ; {
		if resp, err := client.Get(url); err == nil {
			if err := resp.Body.Close(); err != nil {
				return err
			}
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-a.agent.done:
			return a.agent.ended()
		case <-ctx.Done():
			return errors.Join(ctx.Err(), a.agent.stop())
		case <-time.After(readyPace):
		}
		if time.Since(began) > startTime {
			return errors.Join(fmt.Errorf("the agent is not ready after %s:\n%s", startTime, a.agent.log),
				a.agent.stop())
		}
	}
}

// look measures an agent that has everything.
func (a *agentRun) look(ctx context.Context, idle time.Duration) (agentFigures, error) {
	var f agentFigures
	pid := a.agent.cmd.Process.Pid
	if err := pause(ctx, cacheTime); err != nil {
		return f, err
	}
	before, err := fleet.CPUSeconds(pid)
	if err != nil {
		return f, err
	}
	began := time.Now()
	if err := pause(ctx, idle); err != nil {
		return f, err
	}
	after, err := fleet.CPUSeconds(pid)
	if err != nil {
		return f, err
	}
	f.idle = (after - before) / time.Since(began).Seconds()
	info, err := os.Stat(filepath.Join(a.state, "configuration.cache"))
	if err != nil {
		return f, fmt.Errorf("the agent's cache: %w", err)
	}
	f.held = float64(info.Size()) / (1 << 20)
	for field, to := range map[string]*float64{"VmRSS": &f.resident, "RssAnon": &f.private, "VmHWM": &f.peak} {
		if *to, err = fleet.MemoryMB(pid, field); err != nil {
			return f, err
		}
	}
	say("    holds %.1f MB; %.1f MB resident, %.1f of them its own, %.1f at its peak; idle %.3f %% of a core", f.held,
		f.resident, f.private, f.peak, 100*f.idle)
	return f, nil
}

// restart is how long a start from the cache takes while there is no control plane.
func (a *agentRun) restart(ctx context.Context) (time.Duration, error) {
	var all []time.Duration
	for range restarts {
		began := time.Now()
		if err := a.start(ctx); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began))
		if err := a.agent.stop(); err != nil {
			return 0, err
		}
	}
	say("    ready from its cache after %v", all)
	return middle(all), nil
}

// pause waits, or less when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func agentTable(all []agentFigures) (string, int) {
	var b strings.Builder
	missed := 0
	judge := func(ok bool) string {
		if ok {
			return "reached"
		}
		missed++
		return "**missed**"
	}
	b.WriteString("**The agent**\n\n| Envoy | what | | at most | |\n| --- | --- | --: | --- | --- |\n")
	for _, f := range all {
		above := f.resident - f.held
		fmt.Fprintf(&b, "| %s | memory above the %.1f MB that it holds | %.1f MB (%.1f without the program's own file) | %.0f MB | %s |\n", f.envoy, f.held, above, f.private-f.held, agentMemory, judge(above <= agentMemory))
		fmt.Fprintf(&b, "| %s | memory at its peak | %.1f MB | | |\n", f.envoy, f.peak)
		fmt.Fprintf(&b, "| %s | idle | %.3f %% of a core | %s %% | %s |\n", f.envoy, 100*f.idle,
			strconv.FormatFloat(100*agentIdle, 'f', -1, 64), judge(f.idle <= agentIdle))
		fmt.Fprintf(&b, "| %s | ready from its cache, no control plane | %d ms | %d ms | %s |\n", f.envoy,
			f.ready.Milliseconds(), agentReady.Milliseconds(), judge(f.ready <= agentReady))
	}
	b.WriteString("\n")
	return b.String(), missed
}

// middle is the median.
func middle(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
