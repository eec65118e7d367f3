package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/net/netutil"

	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/internal/httpserver"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// control serves "status", "leave" and the levels of logs on the agent's unix socket.
type control struct {
	report func(context.Context) *Report
	admin  *envoy.Admin
	leave  func() // starts to leave the mesh, and returns at once
	log    hclog.Logger
}

// Run serves on l until ctx ends.
func (c *control) Run(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 3*envoy.AdminTimeout)
		defer cancel()
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(c.report(ctx)); err != nil {
			c.log.Debug("write the status", "error", err)
		}
	})
	mux.HandleFunc("POST /leave", func(w http.ResponseWriter, _ *http.Request) {
		c.log.Info("leaving the mesh: an operator asks for it")
		w.WriteHeader(http.StatusAccepted)
		c.leave() // the response is still sent
	})
	mux.HandleFunc("POST /log", c.serveLog)
	mux.HandleFunc("POST /proxy-log", c.serveProxyLog)
	return serveHTTP(ctx, l, mux, c.log)
}

// maxConns bounds the connections to one of the agent's ports.
const maxConns = 1000

// serveHTTP serves on l until ctx ends. It bounds time and connections, because any host can reach
// the status port.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, log hclog.Logger) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * envoy.AdminTimeout,
		WriteTimeout:      5 * envoy.AdminTimeout,
		IdleTimeout:       2 * time.Minute, // more than what is between two scrapes
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return httpserver.Run(ctx, server, netutil.LimitListener(l, maxConns), answering)
}

// answering is how long open requests may take at the end.
const answering = time.Second

// errNotRunning means that no agent answers.
var errNotRunning = errors.New("no agent runs with this state folder")

// askAgent sends a request to the agent of a state folder. Errors: errNotRunning.
func askAgent(ctx context.Context, state, method, path string) ([]byte, error) {
	socket := filepath.Join(state, agentSocket)
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := envoy.UnixClient(socket, 10*time.Second).Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, errNotRunning
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s is for the agent's user and root alone: run this as one of them: %w", socket, err)
	case err != nil:
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	text := strings.TrimSpace(string(body))
	switch {
	case resp.StatusCode == http.StatusBadRequest:
		return nil, errors.New(text)
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("the agent answers %d: %s", resp.StatusCode, text)
	}
	return body, nil
}

// Status returns the report of the agent of a state folder, or OfflineReport if none runs.
func Status(ctx context.Context, state string) (*Report, error) {
	body, err := askAgent(ctx, state, http.MethodGet, "/status")
	switch {
	case errors.Is(err, errNotRunning):
		return OfflineReport(state), nil
	case err != nil:
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	return &r, nil
}

// Leave removes the workload of a state folder from the mesh: its agent leaves the endpoints,
// drains and ends, and the identity is deleted. wait is the maximum time for the agent. The
// certificate stays valid until it expires or the control plane revokes it.
func Leave(ctx context.Context, state string, wait time.Duration) error {
	_, err := askAgent(ctx, state, http.MethodPost, "/leave")
	if err != nil && !errors.Is(err, errNotRunning) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		lock, err := lockState(state)
		var busy *BusyError
		switch {
		case errors.As(err, &busy) && ctx.Err() != nil:
			return fmt.Errorf("the agent (process %d) has not ended within %s: %w", busy.PID, wait, ctx.Err())
		case errors.As(err, &busy):
			task.Sleep(ctx, 50*time.Millisecond)
			continue
		case err != nil:
			return err
		}
		return errors.Join(forget(state), lock.Close())
	}
}

// forget deletes what Join and the agent wrote. The caller holds the lock.
func forget(state string) error {
	err := store{state}.remove()
	for _, name := range []string{settingsFile, cacheFile, bootstrapFile, adminSocket, lockFile} {
		err = errors.Join(err, wholefile.Remove(filepath.Join(state, name)))
	}
	if err != nil {
		return diskError("remove the identity", err)
	}
	return nil
}

// JoinedAs returns the identity in a state folder. Errors: ErrNoIdentity, or it cannot be read.
func JoinedAs(state string) (*Identity, Joined, error) { return store{state}.load() }
