package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lock takes the folder for this run; it ends with the file or the process.
func (m *mesh) lock() (*os.File, error) {
	if err := os.MkdirAll(m.o.dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder --dir: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(m.o.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("folder --dir: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("a quickstart runs in %s already: end it by Ctrl-C there, or give this one others: "+
				"make run ARGS=\"--dir .run2 --network 127.0.9 --xds-address 127.0.9.1:15012 --metrics-address 127.0.9.1:15014\"",
				m.o.dir)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// unlock gives the folder back, also while a program that is just being started has the file still.
func unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

// prepare makes fresh folders, copies the configuration and writes ashored's settings. What an
// earlier run left that was killed is removed: its identities are of an authority that is no more.
func (m *mesh) prepare() error {
	for _, p := range []string{m.tool("ashored"), m.tool("ashore-agent"), m.tool("ashorectl"), m.o.echo, m.o.envoy} {
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("%w; \"make run\" makes everything that is needed", err)
		}
	}
	stale := []string{m.state()}
	for _, w := range workloads() {
		stale = append(stale, m.home(w))
	}
	fresh := []string{m.config(), m.extras(), filepath.Join(m.o.dir, "logs")}
	for _, dir := range append(stale, fresh...) {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for _, dir := range fresh {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return errors.Join(m.copy(m.o.example, m.config()), m.copy(m.o.extras, m.extras()), m.writeSettings())
}

// copy copies the files of a folder, with the addresses of this run.
func (m *mesh) copy(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(string(data), "127.0.0.", m.o.network+".")
		return os.WriteFile(filepath.Join(to, d.Name()), []byte(text), 0o644)
	})
}

// writeSettings writes the settings file of ashored. Quoted as JSON, every path is YAML.
func (m *mesh) writeSettings() error {
	text := fmt.Sprintf("sources: [{kind: files, folder: %q}, {kind: store}]\nstate: %q\nxds: {address: %q}\n"+
		"metrics: {address: %q}\nadmin: {socket: %q}\n",
		m.config(), m.state(), m.o.xds, m.o.metrics, m.socket())
	return os.WriteFile(m.settings(), []byte(text), 0o644)
}

// checkPorts makes sure that everything can open its ports, and names the setting of each that is
// taken.
func (m *mesh) checkPorts(ctx context.Context) error {
	type port struct{ address, of, change string } // change is a flag with an example
	ports := []port{
		{m.o.xds, "ashored's xDS", "--xds-address 127.0.0.1:16012"},
		{m.o.metrics, "ashored's metrics", "--metrics-address 127.0.0.1:16014"},
	}
	for _, w := range workloads() {
		for _, p := range []string{portApp, portIngress, "8000", portProxy, portStatus, "15021", "15090"} {
			ports = append(ports, port{m.at(w, p), w.name, "--network 127.0.9"})
		}
	}
	var errs []error
	for _, p := range ports {
		var c net.ListenConfig
		l, err := c.Listen(ctx, "tcp", p.address)
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("port of %s: %w; end what has it (\"ss -ltnp\" shows it), or choose another: "+
				"make run ARGS=\"%s\"", p.of, err, p.change))
		}
	}
	return errors.Join(errs...)
}
