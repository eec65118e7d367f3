package config

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/ashore-mesh/ashore/xds/envoytypes" // for EnvoyFilters
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
