package main

import (
	"cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/mcp"
)

// olderReaders shows who reads by the older protocol, as those over xDS are shown.
func olderReaders(connected []mcp.ReaderStatus) []admin.ProxyStatus {
	out := make([]admin.ProxyStatus, len(connected))
	for i, r := range connected {
		id := cmp.Or(r.ID, r.Peer)
		out[i] = admin.ProxyStatus{ID: id, Node: id, Kind: "sink", Reader: true, Peer: r.Peer, Connected: r.Connected, Identity: r.Who.String(), Expires: r.Expires, Types: []admin.TypeStatus{}}
		for _, c := range r.Collections {
			out[i].Delta = out[i].Delta || c.Incremental
			if c.Kind != "" { // of the others there is nothing to have
				out[i].Types = append(out[i].Types, olderType(c))
			}
		}
	}
	return out
}

func olderType(c mcp.CollectionStatus) admin.TypeStatus {
	out := admin.TypeStatus{Type: c.Collection, Objects: string(c.Kind), Everything: true, Resources: c.Resources, AcknowledgedAt: c.AcknowledgedAt,
		Latest: c.Latest, Rejections: c.Refusals}
	if c.InFlight {
		out.InFlight = 1
	}
	if !c.RefusedAt.IsZero() {
		out.Rejected = []admin.Rejection{{Time: c.RefusedAt, Error: c.Refusal}}
	}
	return out
}
