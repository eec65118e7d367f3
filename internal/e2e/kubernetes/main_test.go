package kubernetes

import (
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
