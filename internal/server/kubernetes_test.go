package server

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// A kubeconfig that cannot be used stops the start only if its cluster is required.
func TestMissingKubeconfig(t *testing.T) {
	t.Parallel()
	options := kube.DefaultOptions()
	options.Kubeconfig = "/no/such/file"
	for _, required := range []bool{true, false} {
		s := newServer(settings.Config{SourceList: []settings.Source{{Name: "east", Kind: "kubernetes", At: "sources[0]",
			Required: required, Options: &settings.KubernetesSource{Options: options}}}}, hclog.NewNullLogger())
		sources, err := s.makeSources(nil)
		if required {
			want := "setting sources[0] (kubernetes:east): kubeconfig: /no/such/file: "
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("required: error %v, want %s", err, want)
			}
		} else if err != nil || len(sources.Objects) != 1 || len(sources.Services) != 1 {
			t.Errorf("not required: sources %+v, error %v, want one of objects and one of services", sources, err)
		}
	}
}
