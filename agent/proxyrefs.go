package agent

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// refsOf are what an encoded resource needs of other types, as far as the order of delivery has to know: the endpoints of
// a cluster, and the clusters that an extension asks.
func refsOf(typeURL, name string, body []byte) []resource.Ref {
	switch typeURL {
	case clusterTypeURL:
		if assignment, waits := assignmentOf(name, body); waits {
			return []resource.Ref{{TypeURL: endpointTypeURL, Name: assignment}}
		}
	case extensionTypeURL:
		if cluster := askedCluster(body); cluster != "" {
			return []resource.Ref{{TypeURL: clusterTypeURL, Name: cluster}}
		}
	}
	return nil
}

// askedCluster is the cluster that an encoded extension asks whether to let something through; empty: none. What cannot
// be read asks none: Envoy will refuse it.
func askedCluster(extension []byte) string {
	var e corev3.TypedExtensionConfig
	if proto.Unmarshal(extension, &e) != nil {
		return ""
	}
	var requests httpauthzv3.ExtAuthz
	var connections networkauthzv3.ExtAuthz
	config := e.GetTypedConfig()
	switch {
	case config.MessageIs(&requests):
		if config.UnmarshalTo(&requests) != nil {
			return ""
		}
		if cluster := requests.GetHttpService().GetServerUri().GetCluster(); cluster != "" {
			return cluster
		}
		return requests.GetGrpcService().GetEnvoyGrpc().GetClusterName()
	case config.MessageIs(&connections):
		if config.UnmarshalTo(&connections) != nil {
			return ""
		}
		return connections.GetGrpcService().GetEnvoyGrpc().GetClusterName()
	}
	return ""
}

// Numbers of the fields that say which endpoints a cluster has.
const (
	clusterType      = 2 // Cluster.type
	clusterTypeEDS   = 3 // Cluster.DiscoveryType.EDS
	clusterEDSConfig = 3 // Cluster.eds_cluster_config
	edsConfigService = 2 // Cluster.EdsClusterConfig.service_name
)

// assignmentOf is the name of the endpoints that an encoded cluster of that name waits for; not ok: it waits for none.
func assignmentOf(name string, cluster []byte) (assignment string, ok bool) {
	for len(cluster) > 0 {
		num, typ, n := protowire.ConsumeTag(cluster)
		if n < 0 {
			return "", false
		}
		m := protowire.ConsumeFieldValue(num, typ, cluster[n:])
		if m < 0 {
			return "", false
		}
		switch {
		case num == clusterType && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(cluster[n:])
			ok = v == clusterTypeEDS
		case num == clusterEDSConfig && typ == protowire.BytesType:
			config, _ := protowire.ConsumeBytes(cluster[n:])
			if service := serviceOf(config); service != "" && service != name {
				name = service
			}
		}
		cluster = cluster[n+m:]
	}
	return name, ok
}

// serviceOf is the service_name of an encoded EdsClusterConfig.
func serviceOf(config []byte) (service string) {
	for len(config) > 0 {
		num, typ, n := protowire.ConsumeTag(config)
		if n < 0 {
			return service
		}
		m := protowire.ConsumeFieldValue(num, typ, config[n:])
		if m < 0 {
			return service
		}
		if num == edsConfigService && typ == protowire.BytesType {
			b, _ := protowire.ConsumeBytes(config[n:])
			service = string(b)
		}
		config = config[n+m:]
	}
	return service
}
