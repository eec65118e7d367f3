package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/bench/apiserver"
)

const (
	// startTime is how long a server may take to be ready, stopTime to end when asked to.
	startTime = 2 * time.Minute
	stopTime  = 10 * time.Second
)

// process is a server that is measured.
type process struct {
	mesh   mesh   // that it serves
	addr   string // of xDS
	socket string // ashored's admin socket

	cmd  *exec.Cmd
	stop func() // ends the process, and waits for that

	cluster *apiserver.Server // that it reads; nil: none
}

// launch starts a process and waits until it is ready.
func launch(ctx context.Context, ready func() bool, name string, args ...string) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	p := &process{cmd: exec.CommandContext(ctx, name, args...), stop: func() { cancel(); <-done }}
	p.cmd.Stderr = os.Stderr
	p.cmd.Cancel, p.cmd.WaitDelay = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }, stopTime
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing outlives the bench
	if err := p.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(done)
		_ = p.cmd.Wait() // why it ended is on standard error
	}()
	for end := time.After(startTime); !ready(); {
		select {
		case <-done:
			cancel()
			return nil, fmt.Errorf("%s exited unexpectedly", name)
		case <-end:
			p.stop()
			return nil, fmt.Errorf("%s is not ready after %s", name, startTime)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// freeAddr is a loopback address with a port that was free a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// startAshored starts ashored: in plaintext, or with TLS and the mesh's authority, or else one of
// its own.
func (b *bench) startAshored(ctx context.Context, m mesh, tls bool) (*process, error) {
	xds, err1 := freeAddr()
	metrics, err2 := freeAddr()
	state, err3 := os.MkdirTemp(b.work, "state")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	plaintext, secure := xds, ""
	if tls {
		plaintext, secure = "", xds
	}
	socket, file := filepath.Join(state, "admin.sock"), state+".yaml"
	source := "kind: files, folder: " + m.Dir
	if m.Kubeconfig != "" {
		source = "kind: kubernetes, kubeconfig: " + m.Kubeconfig
	}
	settings := fmt.Sprintf("sources: [{%s}]\nstate: %s\nlog: {level: error}\n"+
		"xds: {address: %q, plaintextAddress: %q}\nmetrics: {address: %q}\nadmin: {socket: %s}\nca: {plugged: %q}\n",
		source, state, secure, plaintext, metrics, socket, m.AuthorityDir)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	ready := func() bool {
		resp, err := http.Get("http://" + metrics + "/ready")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}
	p, err := launch(ctx, ready, b.ashored, "--dev", "--config", file)
	if err != nil {
		return nil, err
	}
	p.mesh, p.addr, p.socket = m, xds, socket
	return p, nil
}

// startFloor starts a floor that records from a server.
func (b *bench) startFloor(ctx context.Context, from *process) (*process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(floorConfig{Mesh: from.mesh, Record: from.addr, Listen: addr})
	if err != nil {
		return nil, err
	}
	ready := func() bool {
		c, err := net.Dial("tcp", addr)
		return err == nil && c.Close() == nil
	}
	p, err := launch(ctx, ready, b.self, floorCommand, string(config))
	if err != nil {
		return nil, err
	}
	p.mesh, p.addr = from.mesh, addr
	return p, nil
}
