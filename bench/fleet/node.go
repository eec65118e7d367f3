package fleet

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// extensionCount is how many extensions Envoy 1.40 names in its node: about 60 KB.
const extensionCount = 516

// newExtensions stands for the list that a real Envoy sends of everything it was built with.
func newExtensions() []*corev3.Extension {
	out := make([]*corev3.Extension, extensionCount)
	for i := range out {
		out[i] = &corev3.Extension{
			Name:     fmt.Sprintf("envoy.filters.http.simulated_extension_%03d", i),
			Category: "envoy.filters.http",
			TypeUrls: []string{fmt.Sprintf("envoy.extensions.filters.http.simulated_extension_%03d.v3.Config", i)},
		}
	}
	return out
}

// node is proxy i: a sidecar beside an endpoint of the mesh.
func (s Shape) node(i int) (*corev3.Node, error) {
	svc, ep := i%s.Services, i/s.Services%s.Endpoints
	ip, ns := s.EndpointIP(svc, ep), s.Namespace(svc)
	meta, err := structpb.NewStruct(map[string]any{
		"NAMESPACE": ns, "CLUSTER_ID": "Kubernetes", "MESH_ID": "mesh1", "NAME": fmt.Sprintf("vm%d", i),
		"INSTANCE_IPS": ip, "ISTIO_VERSION": "1.31.0", "SERVICE_ACCOUNT": s.Account(svc),
		"WORKLOAD_NAME": fmt.Sprintf("svc%d", svc),
		"LABELS":        map[string]any{"app": fmt.Sprintf("svc%d", svc), "version": fmt.Sprintf("v%d", ep%2+1)},
	})
	if err != nil {
		return nil, fmt.Errorf("node of proxy %d: %w", i, err)
	}
	return &corev3.Node{
		Id:       fmt.Sprintf("sidecar~%s~vm%d.%s~%s.svc.cluster.local", ip, i, ns, ns),
		Cluster:  fmt.Sprintf("svc%d.%s", svc, ns),
		Metadata: meta,
	}, nil
}
