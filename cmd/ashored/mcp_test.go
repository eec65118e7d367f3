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

// Nobody joins while a required source was never read. Without it, workloads of the groups of other
// sources join: the other control plane may need a certificate first.
func TestJoinBeforeTheNeighbour(t *testing.T) {
	t.Parallel()
	for required, want := range map[string]string{"true": "configuration is not read yet", "false": ""} {
		t.Run("required: "+required, func(t *testing.T) {
			t.Parallel()
			s := newSecureSite(t)
			config := filepath.Join(s.dir, "ashored.yaml")
			text := fmt.Sprintf("sources:\n- {name: peer, kind: mcp, address: '%s', plaintext: true, required: %s}\n"+
				"- {kind: files, folder: %s}\n", testport.Address(t), required, filepath.Join(s.dir, "files"))
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s.argv = append([]string{"--dev", "--config", config, "--set", "xds.address=" + s.secure}, s.set()...)
			s.launch(t)
			var made admin.Token
			s.until(t, "an answer", func() bool {
				var err error
				made, err = admin.Send(t.Context(), admin.NewClient(s.socket), admin.CallCreateToken, admin.TokenRequest{Group: "shop/web"})
				return want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want)
			})
			if want != "" {
				return
			}
			web := s.newMember(t, made)
			if err := web.ask(t, made.Token, "web-1"); err != nil {
				t.Error(err)
			}
		})
	}
}
