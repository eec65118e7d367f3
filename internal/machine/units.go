package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Systemctl is the program "systemctl", or another one in its place.
type Systemctl string

// HasSystemd reports whether the machine was booted with systemd: sd_booted(3).
func HasSystemd() bool {
	_, err := os.Lstat("/run/systemd/system")
	return err == nil
}

// Run runs a command of systemctl. An error contains its output.
func (s Systemctl) Run(ctx context.Context, args ...string) error {
	_, err := s.output(ctx, args...)
	return err
}

func (s Systemctl) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, string(s), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}

// Unit is the state of a unit.
type Unit struct {
	Name string
	// Active is "active", "inactive", "failed", "activating", …; Sub is finer: "running", "exited",
	// "auto-restart", …
	Active, Sub string
	// File is "enabled", "disabled", …; empty: there is no such unit.
	File string
	// Result is "success", or why it failed: "exit-code", "start-limit-hit", …
	Result string
}

// String is "ashore-agent.service is active (running), enabled".
func (u Unit) String() string {
	text := fmt.Sprintf("%s is %s (%s)", u.Name, u.Active, u.Sub)
	if u.Active == "failed" {
		text = fmt.Sprintf("%s has failed (%s)", u.Name, u.Result)
	}
	if u.File != "" {
		text += ", " + u.File
	}
	return text
}

// Show returns the units with these names, and the loaded ones that match a pattern, such as
// "ashore-envoy@*.service".
func (s Systemctl) Show(ctx context.Context, names ...string) ([]Unit, error) {
	out, err := s.output(ctx, append([]string{"show", "--property=Id,ActiveState,SubState,UnitFileState,Result"},
		names...)...)
	if err != nil {
		return nil, err
	}
	var units []Unit
	for block := range strings.SplitSeq(string(out), "\n\n") {
		values := map[string]string{}
		for line := range strings.Lines(block) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			values[name] = value
		}
		if values["Id"] != "" {
			units = append(units, Unit{values["Id"], values["ActiveState"], values["SubState"], values["UnitFileState"],
				values["Result"]})
		}
	}
	return units, nil
}
