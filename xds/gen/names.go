package gen

import (
	"strconv"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// outboundCluster is "outbound|80|v1|web.shop.svc.cluster.local". Source: Istio,
// model.BuildSubsetKey.
func outboundCluster(port uint32, subset, host string) string {
	b := make([]byte, 0, len("outbound||||")+5+len(subset)+len(host))
	b = append(b, "outbound|"...)
	b = strconv.AppendUint(b, uint64(port), 10)
	b = append(b, '|')
	b = append(b, subset...)
	b = append(b, '|')
	b = append(b, host...)
	return string(b)
}

// inboundCluster is "inbound|8080||". Source: Istio, model.BuildInboundSubsetKey.
func inboundCluster(port uint32) string {
	return "inbound|" + strconv.FormatUint(uint64(port), 10) + "||"
}

// Names of the clusters that every sidecar has. Source: Istio, pilot/pkg/networking/util.
const (
	blackHole          = "BlackHoleCluster"
	passthrough        = "PassthroughCluster"
	inboundPassthrough = "InboundPassthroughCluster"
)

// istioMetadata is the key under which Istio's metadata stands.
const istioMetadata = "istio"

// configMember is the member of Istio's metadata that names the object something was made of.
const configMember = "config"

// configPath names an object of a kind ("destination-rule") to people. Source: Istio's filter
// metadata.
func configPath(o *config.Object, kind string) string {
	return "/apis/networking.istio.io/v1/namespaces/" + o.Namespace + "/" + kind + "/" + o.Name
}

const (
	// dnsClusterExtension is the kind of cluster that resolves names, in newer Envoys.
	dnsClusterExtension = "envoy.cluster.dns"
	// dnsJitter spreads the queries of many clusters. Source: Istio.
	dnsJitter = 100 * time.Millisecond
	// dnsFailureRate is how soon a name is asked for again that could not be resolved; it grows up
	// to the mesh's dnsRefreshRate. Envoy's default is that rate at once, so that a proxy which
	// starts before its resolver would be without endpoints for a minute.
	dnsFailureRate = 5 * time.Second
)
