package config

import (
	extensions "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingbeta "istio.io/api/networking/v1beta1"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"google.golang.org/protobuf/proto"
)

// The groups of Istio's API.
const (
	groupNetworking = "networking.istio.io"
	groupSecurity   = "security.istio.io"
	groupTelemetry  = "telemetry.istio.io"
	groupExtensions = "extensions.istio.io"
)

// KindInfo is what there is to know about one kind.
type KindInfo struct {
	Kind Kind
	// Group is the part of apiVersion before the slash.
	Group string
	// Versions are all that were ever published, the one that Encode writes first. All of them
	// read as the same object.
	Versions []string
	// Plural is the name of its collection, "virtualservices".
	Plural string
	// Supported says that Ashore acts on it. A kind that is not supported is read, checked in its
	// structure, and refused.
	Supported bool
	// Protects says that what is refused of it is a protection that is missing: who may call, and
	// as whom.
	Protects bool

	spec    proto.Message // nil, of the kind's type
	without string        // what a mesh lacks while the kind is not supported; completes "… is not supported yet: "
}

// NewSpec returns an empty specification.
func (i *KindInfo) NewSpec() proto.Message { return i.spec.ProtoReflect().New().Interface() }

// APIVersion is what Encode writes, "networking.istio.io/v1".
func (i *KindInfo) APIVersion() string { return i.Group + "/" + i.Versions[0] }

// Kinds is the one table of all kinds, ordered by name.
// Source: istio.io/api kubernetes/customresourcedefinitions.gen.yaml, and its older releases.
func Kinds() []KindInfo {
	networkingVersions := []string{"v1", "v1beta1", "v1alpha3"}
	return []KindInfo{
		{Kind: AuthorizationPolicy, Protects: true, Group: groupSecurity, Versions: []string{"v1", "v1beta1"},
			Plural: "authorizationpolicies", Supported: true,
			spec: (*security.AuthorizationPolicy)(nil)},
		{Kind: DestinationRule, Group: groupNetworking, Versions: networkingVersions, Plural: "destinationrules",
			Supported: true,
			spec:      (*networking.DestinationRule)(nil)},
		{Kind: EnvoyFilter, Group: groupNetworking, Versions: []string{"v1alpha3"}, Plural: "envoyfilters",
			Supported: true,
			spec:      (*networking.EnvoyFilter)(nil)},
		{Kind: Gateway, Group: groupNetworking, Versions: networkingVersions, Plural: "gateways", Supported: true,
			spec: (*networking.Gateway)(nil)},
		{Kind: PeerAuthentication, Protects: true, Group: groupSecurity, Versions: []string{"v1", "v1beta1"},
			Plural: "peerauthentications", Supported: true,
			spec: (*security.PeerAuthentication)(nil)},
		{Kind: ProxyConfig, Group: groupNetworking, Versions: []string{"v1beta1"}, Plural: "proxyconfigs",
			Supported: true,
			spec:      (*networkingbeta.ProxyConfig)(nil)},
		{Kind: RequestAuthentication, Protects: true, Group: groupSecurity, Versions: []string{"v1", "v1beta1"},
			Plural: "requestauthentications", Supported: true,
			spec: (*security.RequestAuthentication)(nil)},
		{Kind: ServiceEntry, Group: groupNetworking, Versions: networkingVersions, Plural: "serviceentries",
			Supported: true,
			spec:      (*networking.ServiceEntry)(nil)},
		{Kind: Sidecar, Group: groupNetworking, Versions: networkingVersions, Plural: "sidecars", Supported: true,
			spec: (*networking.Sidecar)(nil)},
		{Kind: Telemetry, Group: groupTelemetry, Versions: []string{"v1", "v1alpha1"}, Plural: "telemetries",
			Supported: true,
			spec:      (*telemetry.Telemetry)(nil)},
		{Kind: TrafficExtension, Group: groupExtensions, Versions: []string{"v1alpha1"}, Plural: "trafficextensions",
			Supported: true,
			spec:      (*extensions.TrafficExtension)(nil)},
		{Kind: VirtualService, Group: groupNetworking, Versions: networkingVersions, Plural: "virtualservices",
			Supported: true,
			spec:      (*networking.VirtualService)(nil)},
		{Kind: WasmPlugin, Group: groupExtensions, Versions: []string{"v1alpha1"}, Plural: "wasmplugins",
			spec:    (*extensions.WasmPlugin)(nil),
			without: "no proxy would run it"},
		{Kind: WorkloadEntry, Group: groupNetworking, Versions: networkingVersions, Plural: "workloadentries",
			Supported: true,
			spec:      (*networking.WorkloadEntry)(nil)},
		{Kind: WorkloadGroup, Group: groupNetworking, Versions: networkingVersions, Plural: "workloadgroups",
			Supported: true,
			spec:      (*networking.WorkloadGroup)(nil)},
	}
}

// Info returns what there is to know about kind, and whether it is a kind at all.
func Info(kind Kind) (KindInfo, bool) {
	for _, i := range Kinds() {
		if i.Kind == kind {
			return i, true
		}
	}
	return KindInfo{}, false
}
