package identity

import (
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/registry/kube"
)

// The first Connect sets where client-go logs, which is a data race while a client of another test works.
func TestMain(m *testing.M) {
	_, _ = kube.Connect("", kube.Options{}, hclog.NewNullLogger())
	goleak.VerifyTestMain(m)
}
