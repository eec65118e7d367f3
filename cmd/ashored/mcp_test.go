package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// Who waits for another control plane lets workloads of the groups of its own sources join, and
// names what it waits for of others: the other one may need a certificate first.
func TestJoinBeforeTheNeighbour(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings, group, want string
	}{
		"own group":     {"{readers: [rootNamespace]}", "shop/web", ""},
		"unknown group": {"{readers: [rootNamespace]}", "shop/none", "configuration is not read yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSecureSite(t)
			config := filepath.Join(s.dir, "ashored.yaml")
			away := testport.Address(t)
			text := fmt.Sprintf("sources:\n- {name: peer, kind: mcp, address: '%s', plaintext: true}\n- {kind: files, folder: %s}\nmcp: %s\n", away, filepath.Join(s.dir, "files"), c.settings)
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s.argv = append([]string{"--dev", "--config", config, "--set", "xds.address=" + s.secure}, s.set()...)
			s.launch(t)
			var made admin.Token
			s.until(t, "an answer", func() bool {
				var err error
				made, err = admin.Send(t.Context(), admin.NewClient(s.socket), admin.CallCreateToken, admin.TokenRequest{Group: c.group})
				return c.want == "" && err == nil || c.want != "" && err != nil && strings.Contains(err.Error(), c.want)
			})
			if c.want != "" {
				return
			}
			web := s.newMember(t, made)
			if err := web.ask(t, made.Token, "web-1"); err != nil {
				t.Error(err)
			}
		})
	}
}
