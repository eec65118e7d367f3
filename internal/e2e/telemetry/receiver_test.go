package telemetry

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"sync"
	"testing"

	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// receiver is a collector of OpenTelemetry's spans and logs, and Envoy's access log service.
type receiver struct {
	alsv3.UnimplementedAccessLogServiceServer

	mu      sync.Mutex
	spans   []span   // guarded by mu
	logs    []string // guarded by mu: of OpenTelemetry, "SERVICE: BODY"
	entries []string // guarded by mu: of the access log service, "NODE: PATH"
}

// span is what tests look at.
type span struct {
	trace, id, parent string // hex
	service           string
	kind              tracev1.Span_SpanKind
	tags              map[string]string
}

// newReceiver runs one until the test ends.
func newReceiver(t *testing.T, address string) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r, s := &receiver{}, grpc.NewServer()
	alsv3.RegisterAccessLogServiceServer(s, r)
	s.RegisterService(exporter("opentelemetry.proto.collector.trace.v1.TraceService", r.addSpans), r)
	s.RegisterService(exporter("opentelemetry.proto.collector.logs.v1.LogsService", r.addLogs), r)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return r
}

// exporter is a collector's service with the method Export. Its request has the same fields as M,
// and its response none that matter.
func exporter[M any](name string, add func(*M)) *grpc.ServiceDesc {
	export := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := new(M)
		if err := decode(request); err != nil {
			return nil, err
		}
		add(request)
		return &emptypb.Empty{}, nil
	}
	return &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Export", Handler: export}}}
}

func (r *receiver) addSpans(data *tracev1.TracesData) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range data.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, span{
					trace: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId), parent: hex.EncodeToString(s.ParentSpanId),
					service: serviceOf(of.Resource), kind: s.Kind, tags: texts(s.Attributes),
				})
			}
		}
	}
}

func (r *receiver) addLogs(data *logsv1.LogsData) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range data.ResourceLogs {
		for _, scope := range of.ScopeLogs {
			for _, l := range scope.LogRecords {
				r.logs = append(r.logs, serviceOf(of.Resource)+": "+l.Body.GetStringValue()+" "+texts(l.Attributes)["code"])
			}
		}
	}
}

// StreamAccessLogs implements Envoy's service. The first message of a stream has the node.
func (r *receiver) StreamAccessLogs(stream alsv3.AccessLogService_StreamAccessLogsServer) error {
	node := ""
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if id := m.GetIdentifier().GetNode().GetId(); id != "" {
			node = id
		}
		r.mu.Lock()
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			r.entries = append(r.entries, node+": "+e.GetRequest().GetPath())
		}
		r.mu.Unlock()
	}
}

func serviceOf(r *resourcev1.Resource) string { return texts(r.GetAttributes())["service.name"] }

func texts(attributes []*commonv1.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		out[a.Key] = a.Value.GetStringValue()
	}
	return out
}

// received copies a list of the receiver.
func received[T any](r *receiver, list *[]T) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]T(nil), *list...)
}
