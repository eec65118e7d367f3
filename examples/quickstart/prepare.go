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
			err = fmt.Errorf("a quickstart runs in %s already: end it by Ctrl-C there, or give this one others: make run ARGS=\"--dir .run2 --network 127.0.9 --xds-address 127.0.9.1:15010 --metrics-address 127.0.9.1:15014\"", m.o.dir)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// prepare makes fresh folders and copies the configuration.
func (m *mesh) prepare() error {
	for _, p := range []string{filepath.Join(m.o.programs, "ashored"), filepath.Join(m.o.programs, "ashore-agent"), m.o.echo, m.o.envoy} {
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("%w; \"make run\" makes everything that is needed", err)
		}
	}
	for _, dir := range []string{m.config(), m.state(), filepath.Join(m.o.dir, "logs")} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return filepath.WalkDir(m.o.example, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(string(data), "127.0.0.", m.o.network+".")
		return os.WriteFile(filepath.Join(m.config(), d.Name()), []byte(text), 0o644)
	})
}

// checkPorts makes sure that everything can open its ports, and names the setting of each that is taken.
func (m *mesh) checkPorts(ctx context.Context) error {
	type port struct{ address, of, change string } // change is a flag with an example
	ports := []port{
		{m.o.xds, "ashored's xDS", "--xds-address 127.0.0.1:16010"},
		{m.o.metrics, "ashored's metrics", "--metrics-address 127.0.0.1:16014"},
	}
	for _, w := range workloads() {
		for _, p := range []string{portApp, portIngress, "8000", portProxy, "15000", portStatus, "15021", "15090"} {
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
			errs = append(errs, fmt.Errorf("port of %s: %w; end what has it (\"ss -ltnp\" shows it), or choose another: make run ARGS=\"%s\"", p.of, err, p.change))
		}
	}
	return errors.Join(errs...)
}
