package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// joining is the command line of a workload's agent: the command of "ashorectl join-token create"
// for its group, with the token in a file, and the flags that several workloads on one machine
// need. An agent that is started again finds that it has joined.
func (m *mesh) joining(ctx context.Context, w workload) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	var line []string
	if err := until(ctx, func() (err error) { line, err = m.token(ctx, w); return err }); err != nil {
		return nil, fmt.Errorf("no join token for %s within %v: %w", w.name, startWithin, err)
	}
	args := append(line, "--name", w.name, "--address", m.address(w), "--state", m.home(w), "--envoy", m.o.envoy,
		"--set", "envoy.concurrency=1",
		"--set", "drain.maximum=2s")
	if w.proxy {
		args = append(args, "--set", "workload.httpProxyPort="+portProxy)
	}
	return args, nil
}

// token makes a join token for the group of a workload. It returns the arguments of ashore-agent.
func (m *mesh) token(ctx context.Context, w workload) ([]string, error) {
	if _, err := m.get(ctx, m.ready()); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, m.tool("ashorectl"), "--socket", m.socket(), "join-token", "create", "--group",
		"quickstart/"+w.name, "-o", "json")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("ashorectl join-token create: %w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	} else if err != nil {
		return nil, err
	}
	var made struct {
		Join  []string `json:"join"`
		Token string   `json:"token"`
	}
	if err := json.Unmarshal(out, &made); err != nil || len(made.Join) < 2 {
		return nil, fmt.Errorf("ashorectl join-token create prints no command: %w", err)
	}
	file := m.home(w) + ".token"
	if err := os.WriteFile(file, []byte(made.Token), 0o600); err != nil {
		return nil, err
	}
	return append(made.Join[1:], "--token-file", file), nil
}

// ask runs one of the tools and returns what it prints, and its exit code.
func (m *mesh) ask(ctx context.Context, tool string, args ...string) (string, int, error) {
	if tool == "ashorectl" {
		args = append([]string{"--socket", m.socket()}, args...)
	}
	cmd := exec.CommandContext(ctx, m.tool(tool), args...)
	out, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return "", 0, err
	}
	return string(out), cmd.ProcessState.ExitCode(), nil
}

// show prints the output of a tool, indented.
func (m *mesh) show(text string) {
	m.say("    %s", strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    "))
}
