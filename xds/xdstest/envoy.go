package xdstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Config is what an Envoy is made of.
type Config struct {
	// Addr is the control plane, plaintext.
	Addr string
	// ID is the node ID; see NodeID.
	ID string
	// Reject says why it rejects a resource, "" when it does not. Nil accepts everything.
	Reject func(typeURL, name string, body []byte) string
	// Answer, when set, is asked before each acknowledgement or rejection is sent, and may wait.
	Answer func(typeURL string)
}

// Envoy is a fake Envoy that speaks the incremental protocol. Its state outlives its streams. What it
// does as the real one:
//
//   - A new or changed cluster warms until its endpoints arrive after it; until then the old one serves.
//     Once the first clusters were ready, clusters are acknowledged only when none is warming.
//   - Listeners are asked for when the first clusters are ready, and acknowledged while their routes are
//     missing.
//   - Of a rejected response it applies what is right (of endpoints and routes, what precedes the
//     rejected resource) and keeps the version names that it had.
//   - On the next stream it claims those versions. It does not ask for clusters while one is warming.
type Envoy struct {
	cfg Config

	mu        sync.Mutex
	clusters  map[string]*ClusterState     // guarded by mu
	listeners map[string]string            // guarded by mu: name -> route configuration, "" for none
	routes    map[string][]string          // guarded by mu: name -> clusters that it names
	versions  map[string]map[string]string // guarded by mu: type -> name -> version that it says it has
	ready     bool                         // guarded by mu: the first clusters were ready
	received  map[string]int               // guarded by mu: type -> resources received
	broken    []string                     // guarded by mu
	withheld  []*request                   // guarded by mu: answers about clusters
	asked     map[string]bool              // guarded by mu: types asked for on this stream
}

type (
	request  = discoveryv3.DeltaDiscoveryRequest
	response = discoveryv3.DeltaDiscoveryResponse
	client   = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
)

// ClusterState is a cluster as a fake Envoy has it.
type ClusterState struct {
	// Active says that a version of it serves, Warming that one waits for endpoints.
	Active, Warming bool
	// Endpoints is how many it has; -1 until they arrived.
	Endpoints int

	discovered bool
	body       []byte
}

// NewEnvoy makes one that is not connected.
func NewEnvoy(cfg Config) *Envoy {
	return &Envoy{cfg: cfg, clusters: map[string]*ClusterState{}, listeners: map[string]string{},
		routes: map[string][]string{}, versions: map[string]map[string]string{}, received: map[string]int{}}
}

// Run connects and serves one stream until it or ctx ends. Errors are gRPC's.
func (e *Envoy) Run(ctx context.Context) error {
	conn, err := grpc.NewClient(e.cfg.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	err = e.serve(t)
	for errors.Is(err, io.EOF) { // sending found the stream ended; receiving says why
		if _, err = t.Recv(); err == nil {
			err = io.EOF
		}
	}
	return err
}

// serve talks on one stream until it ends.
func (e *Envoy) serve(t client) error {
	e.mu.Lock()
	e.withheld, e.asked = nil, map[string]bool{}
	first := []string{resource.ClusterType}
	if e.ready {
		first = append(first, resource.EndpointType, resource.ListenerType, resource.RouteType)
	}
	if e.warming() {
		first[0] = resource.EndpointType
	}
	e.mu.Unlock()
	for _, typeURL := range first {
		if err := e.ask(t, typeURL); err != nil {
			return err
		}
	}
	for {
		m, err := t.Recv()
		if err != nil {
			return err
		}
		if err := e.handle(t, m); err != nil {
			return err
		}
	}
}

// Clusters, by name.
func (e *Envoy) Clusters() map[string]ClusterState {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]ClusterState{}
	for name, c := range e.clusters {
		out[name] = *c
	}
	return out
}

// Listeners and the route configuration that each names.
func (e *Envoy) Listeners() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.listeners)
}

// Routes are the route configurations and the clusters that each names.
func (e *Envoy) Routes() map[string][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.routes)
}

// Received is how many resources of each type came so far.
func (e *Envoy) Received() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.received)
}

// Broken lists the moments at which a listener led to a cluster that could not serve: requests
// failed.
func (e *Envoy) Broken() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.broken)
}

// handle takes in one response.
func (e *Envoy) handle(t client, r *response) error {
	e.mu.Lock()
	e.received[r.TypeUrl] += len(r.Resources)
	before := e.wanted()
	answer := &request{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, ErrorDetail: e.apply(r)}
	e.check(r)
	after := e.wanted()
	started := !e.ready && e.asked[resource.ClusterType] && answer.ErrorDetail == nil && !e.warming()
	e.ready = e.ready || started
	answers, warming := []*request{answer}, e.warming()
	if r.TypeUrl == resource.ClusterType && (len(e.withheld) > 0 || e.ready && warming && answer.ErrorDetail == nil) {
		answers, e.withheld = nil, append(e.withheld, answer)
	}
	if !warming {
		answers, e.withheld = append(answers, e.withheld...), nil
	}
	e.mu.Unlock()

	for _, a := range answers {
		if e.cfg.Answer != nil {
			e.cfg.Answer(a.TypeUrl)
		}
		if err := t.Send(a); err != nil {
			return err
		}
	}
	for _, typeURL := range []string{resource.EndpointType, resource.RouteType} {
		if err := e.resubscribe(t, typeURL, before[typeURL], after[typeURL]); err != nil {
			return err
		}
	}
	if !warming {
		if err := e.ask(t, resource.ClusterType); err != nil {
			return err
		}
	}
	if started {
		return e.ask(t, resource.ListenerType)
	}
	return nil
}

// apply takes in what a response says. It returns why the response is rejected, or nil.
func (e *Envoy) apply(r *response) *rpcstatus.Status {
	whole, words := r.TypeUrl == resource.ClusterType || r.TypeUrl == resource.ListenerType, ""
	for _, it := range r.Resources {
		why := ""
		if e.cfg.Reject != nil {
			why = e.cfg.Reject(r.TypeUrl, it.Name, it.Resource.Value)
		}
		if why == "" {
			e.update(r.TypeUrl, it.Name, it.Resource.Value)
			continue
		}
		words += fmt.Sprintf("Error adding/updating %s: %s\n", it.Name, why)
		if !whole {
			break
		}
	}
	for _, name := range r.RemovedResources {
		e.remove(r.TypeUrl, name)
	}
	if words != "" {
		return &rpcstatus.Status{Code: int32(codes.Internal), Message: words}
	}
	if e.versions[r.TypeUrl] == nil {
		e.versions[r.TypeUrl] = map[string]string{}
	}
	for _, it := range r.Resources {
		e.versions[r.TypeUrl][it.Name] = it.Version
	}
	for _, name := range r.RemovedResources {
		delete(e.versions[r.TypeUrl], name)
	}
	return nil
}

func (e *Envoy) update(typeURL, name string, body []byte) {
	switch typeURL {
	case resource.ClusterType:
		var c clusterv3.Cluster
		decode(body, &c)
		old := e.clusters[name]
		if old == nil {
			old = &ClusterState{Endpoints: -1}
			e.clusters[name] = old
		}
		if bytes.Equal(old.body, body) {
			return // as it was: it does not warm again
		}
		old.body = body
		old.discovered = c.GetType() == clusterv3.Cluster_EDS
		old.Warming = old.discovered
		old.Active = old.Active || !old.Warming
	case resource.EndpointType:
		var a endpointv3.ClusterLoadAssignment
		decode(body, &a)
		c := e.clusters[name]
		if c == nil {
			return
		}
		c.Active, c.Warming, c.Endpoints = true, false, 0
		for _, l := range a.Endpoints {
			c.Endpoints += len(l.LbEndpoints)
		}
	case resource.ListenerType:
		e.listeners[name] = routeOf(body)
	case resource.RouteType:
		var r routev3.RouteConfiguration
		decode(body, &r)
		var clusters []string
		for _, h := range r.VirtualHosts {
			for _, rt := range h.Routes {
				clusters = append(clusters, rt.GetRoute().GetCluster())
			}
		}
		e.routes[name] = clusters
	}
}

// routeOf is the route configuration that a listener names.
func routeOf(body []byte) string {
	var l listenerv3.Listener
	decode(body, &l)
	for _, c := range l.FilterChains {
		for _, f := range c.Filters {
			var m hcmv3.HttpConnectionManager
			if f.GetTypedConfig().MessageIs(&m) {
				decode(f.GetTypedConfig().Value, &m)
				return m.GetRds().GetRouteConfigName()
			}
		}
	}
	return ""
}

// decode reads a resource; what a test makes can be read.
func decode(b []byte, m proto.Message) {
	if err := proto.Unmarshal(b, m); err != nil {
		panic(fmt.Sprintf("xdstest: %T: %v", m, err))
	}
}

func (e *Envoy) remove(typeURL, name string) {
	switch typeURL {
	case resource.ClusterType:
		delete(e.clusters, name)
		delete(e.versions[resource.EndpointType], name)
	case resource.ListenerType:
		delete(e.listeners, name)
	}
	for name := range e.routes { // a route configuration goes with the last listener that names it
		if !slices.Contains(slices.Collect(maps.Values(e.listeners)), name) {
			delete(e.routes, name)
			delete(e.versions[resource.RouteType], name)
		}
	}
}

// warming says whether a cluster waits for endpoints.
func (e *Envoy) warming() bool {
	for _, c := range e.clusters {
		if c.Warming {
			return true
		}
	}
	return false
}

// wanted are the names that it subscribes to.
func (e *Envoy) wanted() map[string][]string {
	out := map[string][]string{}
	for name, c := range e.clusters {
		if c.discovered {
			out[resource.EndpointType] = append(out[resource.EndpointType], name)
		}
	}
	for _, route := range e.listeners {
		if route != "" && !slices.Contains(out[resource.RouteType], route) {
			out[resource.RouteType] = append(out[resource.RouteType], route)
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}

// check notes which listener leads to a cluster that cannot serve.
func (e *Envoy) check(r *response) {
	for _, l := range slices.Sorted(maps.Keys(e.listeners)) {
		for _, c := range e.routes[e.listeners[l]] {
			if cl := e.clusters[c]; cl == nil || !cl.Active || cl.discovered && cl.Endpoints == 0 {
				e.broken = append(e.broken,
					fmt.Sprintf("listener %s leads to cluster %s, which cannot serve (after %s %s)", l, c, r.TypeUrl,
						r.Nonce))
			}
		}
	}
}

// ask sends the first request of a type on a stream.
func (e *Envoy) ask(t client, typeURL string) error {
	e.mu.Lock()
	names := e.wanted()[typeURL]
	if e.asked[typeURL] || len(names) == 0 && typeURL != resource.ClusterType && typeURL != resource.ListenerType {
		e.mu.Unlock()
		return nil
	}
	r := &request{TypeUrl: typeURL, ResourceNamesSubscribe: names,
		InitialResourceVersions: maps.Clone(e.versions[typeURL])}
	if len(e.asked) == 0 { // it is the first request of the stream
		r.Node = node(e.cfg.ID)
	}
	e.asked[typeURL] = true
	e.mu.Unlock()
	return t.Send(r)
}

// node is the node of the first request.
func node(id string) *corev3.Node {
	meta := map[string]*structpb.Value{"NAMESPACE": structpb.NewStringValue("shop")}
	return &corev3.Node{Id: id, UserAgentName: "fake", Metadata: &structpb.Struct{Fields: meta}}
}

// resubscribe tells how the names of a type changed.
func (e *Envoy) resubscribe(t client, typeURL string, before, after []string) error {
	if slices.Equal(before, after) {
		return nil
	}
	if !e.asked[typeURL] { // only this goroutine changes it
		return e.ask(t, typeURL)
	}
	lacks := func(in []string) func(string) bool {
		return func(name string) bool { return slices.Contains(in, name) }
	}
	return t.Send(&request{TypeUrl: typeURL,
		ResourceNamesSubscribe:   slices.DeleteFunc(slices.Clone(after), lacks(before)),
		ResourceNamesUnsubscribe: slices.DeleteFunc(slices.Clone(before), lacks(after))})
}
