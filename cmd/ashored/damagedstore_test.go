package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/settings"
)

// A damaged file in the state folder says what is lost with it: next to nothing where the mesh's
// store is in Consul.
func TestDamagedStoreFile(t *testing.T) {
	t.Parallel()
	for kind, tc := range map[string]struct{ says, not string }{
		settings.StoreBolt:   {"objects written to the store and their history", "Consul"},
		settings.StoreConsul: {"this replica's copy of the store in Consul", "Lost with it"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			state := filepath.Join(s.dir, "state")
			home, err := bolt.New(bolt.Config{Dir: state})
			if err != nil {
				t.Fatal(err)
			}
			if err := home.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(state, bolt.FileName), 5000); err != nil {
				t.Fatal(err)
			}
			config := filepath.Join(s.dir, "ashored.yaml")
			if err := os.WriteFile(config, fmt.Appendf(nil, "store: {kind: %s}\nsources: [{kind: store}]\n", kind),
				0o600); err != nil {
				t.Fatal(err)
			}
			var errOut bytes.Buffer
			code := run(t.Context(), []string{"--dev", "--config", config, "--set", "state=" + state, "--set",
				"xds.plaintextAddress=" + s.xds, "--set", "metrics.address=" + s.metrics}, &errOut, &errOut)
			if said := errOut.String(); code != 1 || !strings.Contains(said, "Move the file away") ||
				!strings.Contains(said, tc.says) || strings.Contains(said, tc.not) {
				t.Errorf("it ended with %d and said %q, want %q", code, said, tc.says)
			}
		})
	}
}
