package envoy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The unit of systemd starts Envoy with the arguments, the attributes and the variables of the file
// that the agent writes.
func TestUnitReadsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	const script = "#!/bin/sh\nprintf '%s|' \"$1 $2\" \"$OTEL_RESOURCE_ATTRIBUTES\" \"$A\" \"$B\" \"$Written\"\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile("../../systemd/ashore-envoy@.service")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?s)\nExecStart=/bin/bash -c '(.*?)'\n`).FindSubmatch(unit)
	if command == nil {
		t.Fatal("no command")
	}
	// What systemd does, and the paths of this test.
	text := strings.NewReplacer("\\\n", " ", "$$", "$", "%i", "0", "/run/ashore-agent/", dir+"/",
		"/usr/lib/ashore/envoy", program).Replace(string(command[1]))
	for name, tc := range map[string]struct {
		variables []string
		want      string
	}{
		"none": {nil, "--concurrency 2|service.name=web.shop||||"},
		"some": {[]string{"A=b  c\\n$A", "B='\""}, "--concurrency 2|service.name=web.shop|b  c\\n$A|'\"||"},
	} {
		o := Options{Concurrency: 2, Service: "web.shop", Variables: tc.variables}
		l, err := newLaunch(UnitsConfig{Options: o, Program: program, Folder: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.write(0); err != nil {
			t.Fatal(err)
		}
		run := exec.CommandContext(t.Context(), "bash", "-c", text)
		run.Env = []string{"PATH=" + os.Getenv("PATH")}
		if out, err := run.CombinedOutput(); err != nil || string(out) != tc.want {
			t.Errorf("%s: got %q, %v, want %q", name, out, err, tc.want)
		}
	}
}
