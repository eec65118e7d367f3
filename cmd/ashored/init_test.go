package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/settings"
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
	settings := strings.Replace(string(text), "groups: [ashore]", `groups: ["0"]`, 1)
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
	if code != exitExists || !strings.Contains(errOut.String(), "ashore.db exists") || out.Len() > 0 {
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
	if code != exitFailed || !strings.Contains(errOut.String(), "there is no control plane in "+state+
		": create one with \"ashored init\", or correct the setting state") {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
	if _, err := os.Lstat(state); err == nil {
		t.Error("it made the folder")
	}
}

// startedRoot is the root of the authority as ashored finds it again.
func startedRoot(t *testing.T, file string) string {
	t.Helper()
	s, err := settings.Read(file, settings.Default())
	if err == nil {
		err = s.Check(file)
	}
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

// A root that is plugged in or shared is not created, nor one without a listener that needs it.
func TestInitWithoutRoot(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"plugged":   "ca: {plugged: /nowhere}\n",
		"shared":    "store: {kind: consul}\n",
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
