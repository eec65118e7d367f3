package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// packaged is a file of the settings that the package installs, with a state folder and a group of
// this machine.
func packaged(t *testing.T) (file, state string) {
	t.Helper()
	text, err := os.ReadFile("../../systemd/packaging/ashored.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	state = filepath.Join(dir, "state")
	settings := strings.Replace(string(text), "operator: [ashore]", `operator: ["0"]`, 1)
	file = filepath.Join(dir, "ashored.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%sstate: %s\n", settings, state), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, state
}

// init creates a store and a root, which ashored goes on with, and never replaces them.
func TestInit(t *testing.T) {
	t.Parallel()
	file, state := packaged(t)
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"init", "--config", file}, &out, &errOut); code != 0 || errOut.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	root := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(out.String())
	if root == "" {
		t.Fatalf("no root in %q", out.String())
	}
	key := filepath.Join(state, "ca", "root-key.pem")
	before, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}

	out.Reset()
	code := run(t.Context(), []string{"init", "--config", file}, &out, &errOut)
	if code != 0 || !strings.HasPrefix(out.String(), state+" has a store already, which was not changed\nthe root certificate is "+root) {
		t.Errorf("again: exit code %d, %q, %q", code, out.String(), errOut.String())
	}
	if after, err := os.ReadFile(key); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the root's key changed: %v", err)
	}
	if got := startedRoot(t, file); got != root {
		t.Errorf("ashored has the root %s, init created %s", got, root)
	}
}

// ashored does not start in a folder that belongs to no control plane, as that of a mistyped setting.
func TestNotInitialized(t *testing.T) {
	t.Parallel()
	file, state := packaged(t)
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"--config", file}, &out, &errOut)
	if code != exitFailed || !strings.Contains(errOut.String(), "there is no store in "+state+
		": correct the setting state, or create one with \"ashored init\"") {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
	if _, err := os.Lstat(state); err == nil {
		t.Error("it made the folder")
	}
}

// ashored does not make a root in a store that has none; init does.
func TestNoRoot(t *testing.T) {
	t.Parallel()
	file, state := packaged(t)
	var out, errOut bytes.Buffer
	plaintext := []string{"--set", `xds.address=""`, "--set", "xds.plaintextAddress=127.0.0.1:7000"}
	if code := run(t.Context(), append([]string{"init", "--config", file}, plaintext...), &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	code := run(t.Context(), []string{"--config", file, "--set", "sources=[{kind: store}]",
		"--set", "xds.address=" + testport.Address(t), "--set", "metrics.address=" + testport.Address(t)}, &out, &errOut)
	if code != exitFailed || !strings.Contains(errOut.String(), "there is no root certificate in "+filepath.Join(state, "ca")+
		": create one with \"ashored init\"") {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
	if code := run(t.Context(), []string{"init", "--config", file}, &out, &errOut); code != 0 ||
		!strings.Contains(out.String(), "the root certificate is sha256:") {
		t.Errorf("init: exit code %d, %q, %q", code, out.String(), errOut.String())
	}
}

// startedRoot is the root of the authority as ashored finds it again.
func startedRoot(t *testing.T, file string) string {
	t.Helper()
	s, err := settings.Read(settings.Flags{File: file})
	if err != nil {
		t.Fatal(err)
	}
	home, err := bolt.New(bolt.Config{Dir: s.State})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := home.Close(); err != nil {
			t.Error(err)
		}
	}()
	manager, err := ca.NewManager(t.Context(), ca.ManagerConfig{
		Dir: filepath.Join(s.State, "ca"), TrustDomain: "cluster.local", Records: home.Records(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return ca.RootID(manager.Bundle().Roots[0])
}

// A root that is plugged in is not created, nor one without a listener that needs it.
func TestInitWithoutRoot(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"plugged":   "ca: {plugged: /nowhere}\n",
		"plaintext": "xds: {address: \"\", plaintextAddress: \"127.0.0.1:15010\"}\n",
	} {
		file, state := packaged(t)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if name == "plaintext" {
			text = bytes.Replace(text, []byte("\nxds:\n"), []byte("\n"), 1)
		}
		if err := os.WriteFile(file, append(text, more...), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		code := run(t.Context(), []string{"init", "--config", file}, &out, &errOut)
		if code != 0 || out.String() != "created the store in "+state+"\n" {
			t.Errorf("%s: exit code %d: %s%s", name, code, out.String(), errOut.String())
		}
		if _, err := os.Stat(filepath.Join(state, "ca", "root-key.pem")); err == nil {
			t.Errorf("%s: a root was created", name)
		}
	}
}

// The first init creates a shared store, with what the state folder had; another replica finds it.
// Without it ashored does not start.
func TestInitShared(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	replica := func() string {
		file, _ := packaged(t)
		f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(f, "store: {kind: consul, address: 'http://%s'}\n", agent.Address)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		return file
	}
	first, second := replica(), replica()
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"init", "--config", first, "--set", "store={kind: bolt, address: 'http://127.0.0.1:8500'}"}, &out, &errOut); code != 0 {
		t.Fatalf("init alone: exit code %d: %s", code, errOut.String())
	}
	start := []string{"--config", first, "--set", "xds.address=127.0.0.1:0", "--set", "metrics.address=127.0.0.1:0",
		"--set", "admin.socket=" + filepath.Join(t.TempDir(), "s")}
	if code := run(t.Context(), start, &out, &errOut); code != exitFailed ||
		!strings.Contains(errOut.String(), "is empty: correct the setting store") {
		t.Errorf("without a shared store: exit code %d: %s", code, errOut.String())
	}
	for _, tc := range []struct{ file, want string }{{first, "created the store ashore/cluster.local"},
		{second, "this replica shares it"}, {first, "this replica shares it"}} {
		out.Reset()
		if code := run(t.Context(), []string{"init", "--config", tc.file}, &out, &errOut); code != 0 ||
			!strings.Contains(out.String(), tc.want) {
			t.Errorf("exit code %d, %q, %s; want %q", code, out.String(), errOut.String(), tc.want)
		}
	}
}
