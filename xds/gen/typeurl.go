package gen

import "github.com/ashore-mesh/ashore/xds/resource"

// The types of resources that a Generator makes.
const (
	ClusterType         = resource.ClusterType
	EndpointType        = resource.EndpointType
	ListenerType        = resource.ListenerType
	RouteType           = resource.RouteType
	SecretType          = resource.SecretType
	ExtensionConfigType = resource.ExtensionConfigType
	NameTableType       = resource.NameTableType
)
