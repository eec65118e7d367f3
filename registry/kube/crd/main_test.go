package crd

import (
	"flag"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/registry/kube"
)

// TestMain takes the flag -update, which rewrites the golden file. The first Connect sets where
// client-go logs, which is a data race while a client of another test works.
func TestMain(m *testing.M) {
	flag.Bool("update", false, "rewrite the golden file")
	_, _ = kube.Connect("", kube.Options{}, hclog.NewNullLogger())
	goleak.VerifyTestMain(m)
}
