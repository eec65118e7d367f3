package xds

import (
	"cmp"
	"encoding/json"
	"net/url"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// Types of istioctl's questions about the control plane and its proxies. The name of debugType is
// the question: "syncz". Source: Istio, pilot/pkg/xds/debuggen.go and statusgen.go.
const (
	debugType       = "istio.io/debug"
	debugSyncType   = debugType + "/syncz"
	debugConfigType = debugType + "/config_dump"
)

func isDebug(typeURL string) bool {
	return typeURL == debugType || strings.HasPrefix(typeURL, debugType+"/")
}

// debug answers one question. Nothing is sent when the answer changes later.
func (st *stream) debug(r *ads.Request) error {
	if strings.HasPrefix(r.Nonce, st.prefix()) {
		return nil // an acknowledgement. A first request of istioctl has a nonce of its own.
	}
	names := r.Subscribe()
	question := strings.Join(append([]string{r.TypeURL}, names...), " ")
	if err := st.mayDebug(); err != nil {
		st.server.metrics.refused.WithLabelValues("debug").Inc()
		st.audit(audit.DumpRead, question, audit.Refused, status.Convert(err).Message())
		return err
	}
	answer, err := st.server.answer(r.TypeURL, names)
	if err != nil {
		return err
	}
	st.audit(audit.DumpRead, question, audit.OK, "")
	return st.sendAnswer(r.TypeURL, answer)
}

// mayDebug returns an error if the stream's peer may not ask. A stream that only asks is not among
// those that Recheck ends, so its certificate is verified for each question.
func (st *stream) mayDebug() error {
	s, id := st.server, st.who.Identity
	if id == (spiffe.ID{}) {
		return status.Error(codes.Unauthenticated, "authentication required")
	}
	if s.cfg.MayDebug == nil || !s.cfg.MayDebug(id) {
		return status.Errorf(codes.PermissionDenied, "the debug info is not available for current identity: %q", id)
	}
	if _, err := s.verify(st.who); err != nil {
		return errUnauthenticated
	}
	return nil
}

// sendAnswer sends resources in the protocol of the stream.
func (st *stream) sendAnswer(typeURL string, answer []*discoveryv3.Resource) error {
	nonce := st.prefix() + "debug"
	var plane *corev3.ControlPlane
	if typeURL == debugSyncType { // as in Istio, where only this answer says who gave it
		plane = st.server.controlPlane()
	}
	var m proto.Message = &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: nonce, Resources: answer,
		ControlPlane: plane}
	if st.sotw {
		states := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, Nonce: nonce, VersionInfo: nonce,
			ControlPlane: plane}
		for _, r := range answer {
			states.Resources = append(states.Resources, r.Resource)
		}
		m = states
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return st.grpc.SendMsg(&frame{out: mem.BufferSlice{mem.SliceBuffer(b)}})
}

// controlPlane names this replica and its version, as istioctl reads them.
func (s *Server) controlPlane() *corev3.ControlPlane {
	b := build.Read()
	id, _ := json.Marshal(map[string]any{"Component": "ashored", "ID": s.cfg.Replica, // strings cannot fail
		"Info": map[string]string{"version": b.Version, "revision": b.Commit, "golang_version": b.Go}})
	return &corev3.ControlPlane{Identifier: string(id)}
}

// answer returns the answer to a question.
func (s *Server) answer(typeURL string, names []string) (out []*discoveryv3.Resource, err error) {
	switch {
	case typeURL == debugSyncType:
		for _, c := range s.clientConfigs() {
			body, err := anypb.New(c)
			if err != nil {
				return nil, err
			}
			out = append(out, &discoveryv3.Resource{Name: c.Node.Id, Resource: body})
		}
		return out, nil
	case typeURL != debugType && typeURL != debugConfigType:
		return nil, status.Errorf(codes.Unimplemented, "there is no type %s: %s, %s and %s are known", typeURL,
			debugType, debugSyncType, debugConfigType)
	case len(names) != 1:
		return nil, status.Error(codes.InvalidArgument, "exactly one debug request is required")
	case typeURL == debugConfigType:
		dump, err := s.configDump(names[0], false)
		for _, section := range dump.GetConfigs() {
			out = append(out, &discoveryv3.Resource{Resource: section})
		}
		return out, err
	}
	text, err := s.debugText(names[0])
	return []*discoveryv3.Resource{{Name: names[0], Resource: &anypb.Any{TypeUrl: debugType, Value: text}}}, err
}

// debugText returns the answer to a question in JSON.
func (s *Server) debugText(question string) (text []byte, err error) {
	u, err := url.Parse(question)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	switch u.Path {
	case "syncz":
		proxies := []json.RawMessage{}
		for _, c := range s.clientConfigs() {
			one, err := protojson.Marshal(c)
			if err != nil {
				return nil, err
			}
			proxies = append(proxies, one)
		}
		return json.Marshal(proxies)
	case "config_dump":
		dump, err := s.configDump(u.Query().Get("proxyID"), u.Query().Has("include_eds"))
		if err != nil {
			return nil, err
		}
		return protojson.Marshal(dump)
	}
	return nil, status.Errorf(codes.Unimplemented, "there is no debug info %q: syncz and "+
		"config_dump?proxyID=PROXY are known", u.Path)
}

// clientConfigs are the proxies with the state of each type.
func (s *Server) clientConfigs() (out []*statusv3.ClientConfig) {
	for _, p := range s.Proxies() {
		meta := map[string]*structpb.Value{"NAMESPACE": structpb.NewStringValue(p.Node.Namespace),
			"ISTIO_VERSION": structpb.NewStringValue(cmp.Or(p.Agent, p.Envoy))}
		c := &statusv3.ClientConfig{Node: &corev3.Node{Id: p.Node.ID, Metadata: &structpb.Struct{Fields: meta}}}
		for _, t := range p.Types {
			x := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: t.TypeURL,
				ConfigStatus: statusv3.ConfigStatus(statusv3.ConfigStatus_value[t.State()])}
			if !t.AcknowledgedAt.IsZero() {
				x.LastUpdated = timestamppb.New(t.AcknowledgedAt)
			}
			if message := t.lastError(); message != "" {
				x.ErrorState = &adminv3.UpdateFailureState{Details: message}
			}
			c.GenericXdsConfigs = append(c.GenericXdsConfigs, x)
		}
		out = append(out, c)
	}
	return out
}
