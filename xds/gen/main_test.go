package gen

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain takes the flag -update, which rewrites what golden files expect.
func TestMain(m *testing.M) {
	flag.Bool("update", false, "rewrite what golden files expect")
	goleak.VerifyTestMain(m)
}
