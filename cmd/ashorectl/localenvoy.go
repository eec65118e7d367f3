package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/agent/envoy"
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
	admin, err := envoyOf(cmd.Context(), proxy, sockets)
	if err != nil {
		return fmt.Errorf("%w: on its machine run %q", err, elsewhere)
	}
	body, err := admin.Do(cmd.Context(), method, at)
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

// envoyOf returns the Envoy of a proxy. Errors: none of the sockets is its.
func envoyOf(ctx context.Context, proxy string, sockets []string) (*envoy.Admin, error) {
	var failed error
	for _, socket := range sockets {
		admin := envoy.NewAdmin(socket)
		info, err := admin.ServerInfo(ctx)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", socket, err))
			continue
		}
		id := info.GetNode().GetId()
		if parts := strings.Split(id, "~"); id == proxy || len(parts) == 4 && parts[2] == proxy {
			return admin, nil
		}
	}
	return nil, errors.Join(failed, fmt.Errorf("no Envoy of %s answers on this machine, and only Envoy itself knows this",
		proxy))
}
