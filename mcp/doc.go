// Package mcp exchanges configuration with other control planes by MCP over xDS, as Istio does
// (configSources: xds://…).
//
// A Source is a config.Source that subscribes to all kinds on a discovery stream. Each resource is
// one group. It retains nothing: the feed.Merger does that, across outages and restarts too. Objects
// that fail validation are rejected, and are problems here.
//
// A Catalog encodes our own objects as resources. Package xds serves it on its discovery streams.
package mcp
