package bolt

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	configtest.TestStore(t,
		func(t *testing.T) config.Store { return open(t, Config{Dir: t.TempDir()}) },
		func(t *testing.T, s config.Store) config.Store {
			old := s.(*Store)
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, old.cfg)
		})
}
