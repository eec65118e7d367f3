package main

import (
	"context"
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

// envoySockets are where Envoys of agents have their admin interface. Source: docs/agent.md.
func envoySockets() []string {
	var out []string
	for _, pattern := range []string{"/run/ashore-agent/*/envoy/admin.sock", "/var/lib/ashore-agent/*/admin.sock"} {
		found, _ := filepath.Glob(pattern) // the patterns are valid
		out = append(out, found...)
	}
	return out
}

// showLocal prints what only the Envoy of a proxy knows: its bootstrap, or else the levels of its
// log. socket is its admin interface; empty: that of an agent on this machine.
func (t *tool) showLocal(cmd *cobra.Command, socket, proxy string, bootstrap bool) error {
	method, at, elsewhere := http.MethodPost, "/logging", "ashore-agent proxy-log"
	if bootstrap {
		method, at = http.MethodGet, "/config_dump"
		elsewhere = "curl --unix-socket STATE/admin.sock http://envoy" + at
	}
	sockets := envoySockets()
	if socket != "" {
		sockets = []string{socket}
	}
	socket, err := envoyOf(cmd.Context(), proxy, sockets)
	if err != nil {
		return fmt.Errorf("%w: on its machine run %q", err, elsewhere)
	}
	body, err := askEnvoy(cmd.Context(), socket, method, at)
	if err != nil {
		return err
	}
	if !bootstrap {
		return t.print(cmd, string(body), string(body)+"\nashore-agent proxy-log --level LEVEL sets them.\n")
	}
	dump, err := readNode(body)
	for _, section := range dump.list("configs") {
		if strings.HasSuffix(section.text("@type"), ".BootstrapConfigDump") {
			text, err := toYAML(section.at("bootstrap").value)
			if err != nil {
				return err
			}
			return t.print(cmd, section.at("bootstrap").value, text)
		}
	}
	return errors.Join(errors.New("the answer of Envoy has no bootstrap"), err)
}

// envoyOf returns the socket of the Envoy of a proxy. Errors: none of the sockets is its.
func envoyOf(ctx context.Context, proxy string, sockets []string) (string, error) {
	var failed error
	for _, socket := range sockets {
		body, err := askEnvoy(ctx, socket, http.MethodGet, "/server_info")
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		info, err := readNode(body)
		failed = errors.Join(failed, err)
		id := info.text("node.id")
		if parts := strings.Split(id, "~"); id == proxy || len(parts) == 4 && parts[2] == proxy {
			return socket, nil
		}
	}
	return "", errors.Join(failed, fmt.Errorf("no Envoy of %s answers on this machine, and only Envoy itself knows this",
		proxy))
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
