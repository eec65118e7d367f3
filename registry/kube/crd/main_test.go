package crd

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain takes the flag -update, which rewrites the golden file.
func TestMain(m *testing.M) {
	flag.Bool("update", false, "rewrite the golden file")
	goleak.VerifyTestMain(m)
}
