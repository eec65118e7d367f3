package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// localEnvoy is the Envoy of a workload on this machine. It alone knows its bootstrap and the levels
// of its log.
type localEnvoy struct {
	socket string // of its admin interface; empty: one of envoySockets
}

// envoySockets are where Envoys of agents have their admin interface. Source: docs/agent.md.
func envoySockets() []string {
	var out []string
	for _, pattern := range []string{"/run/ashore-agent/*/envoy/admin.sock", "/var/lib/ashore-agent/*/admin.sock"} {
		found, _ := filepath.Glob(pattern) // the patterns are valid
		out = append(out, found...)
	}
	return out
}

// find returns the socket of the Envoy of a proxy, by its ID. Errors: it is not on this machine;
// elsewhere is the command for its machine.
func (e *localEnvoy) find(ctx context.Context, proxy, elsewhere string) (string, error) {
	sockets := envoySockets()
	if e.socket != "" {
		sockets = []string{e.socket}
	}
	var failed error
	for _, socket := range sockets {
		body, err := askEnvoy(ctx, socket, http.MethodGet, "/server_info")
		var info struct{ Node struct{ ID string } }
		if err == nil {
			err = json.Unmarshal(body, &info)
		}
		parts := strings.Split(info.Node.ID, "~")
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case info.Node.ID == proxy || len(parts) == 4 && parts[2] == proxy:
			return socket, nil
		}
	}
	return "", errors.Join(fmt.Errorf("no Envoy of %s answers on this machine, and only Envoy itself knows this: "+
		"on its machine run %q", proxy, elsewhere), failed)
}

func (e *localEnvoy) showBootstrap(t *tool, cmd *cobra.Command, proxy string) error {
	const dump = "/config_dump"
	socket, err := e.find(cmd.Context(), proxy, "curl --unix-socket STATE/admin.sock http://envoy"+dump)
	if err != nil {
		return err
	}
	body, err := askEnvoy(cmd.Context(), socket, http.MethodGet, dump)
	if err != nil {
		return err
	}
	var all struct {
		Configs []struct {
			Type      string `json:"@type"`
			Bootstrap any    `json:"bootstrap"`
		}
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return fmt.Errorf("read Envoy's configuration: %w", err)
	}
	for _, c := range all.Configs {
		if strings.HasSuffix(c.Type, ".BootstrapConfigDump") {
			text, err := toYAML(c.Bootstrap)
			if err != nil {
				return err
			}
			return t.print(cmd, c.Bootstrap, text)
		}
	}
	return errors.New("the configuration of Envoy has no bootstrap")
}

func (e *localEnvoy) showLog(t *tool, cmd *cobra.Command, proxy string) error {
	socket, err := e.find(cmd.Context(), proxy, "ashore-agent proxy-log")
	if err != nil {
		return err
	}
	levels, err := askEnvoy(cmd.Context(), socket, http.MethodPost, "/logging")
	if err != nil {
		return err
	}
	return t.print(cmd, string(levels), string(levels)+"\nashore-agent proxy-log --level LEVEL sets them.\n")
}

// askEnvoy sends a request to the admin interface at a socket.
func askEnvoy(ctx context.Context, socket, method, at string) ([]byte, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := &http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, method, "http://envoy"+at, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask Envoy at %s: %w", socket, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxExposition))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("read the answer of Envoy at %s: %w", socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the Envoy at %s answers %s: %.300s", socket, resp.Status, body)
	}
	return body, nil
}
