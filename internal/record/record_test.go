package record_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/record/recordtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	recordtest.Run(t, func(*testing.T) record.Store { return record.NewMemory() })
}
