package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

const logFloodMesh = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec: {template: {serviceAccount: web}}
`

// A workload that opens and resets streams does not fill the log, and lines about others are still
// logged.
func TestLogFlood(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": logFloodMesh}, harness.Secure(""))
	attacker := m.Enrol(harness.Workload{Name: "attacker", Group: "shop/web"})
	other := m.Enrol(harness.Workload{Name: "other", Group: "shop/web"})
	before := strings.Count(m.Ashored.Log(), "\n")

	const resets = 20000
	if err := resetStreams(t.Context(), attacker, m.TLS(), resets); err != nil {
		t.Fatal(err)
	}
	for i := range 100 { // whole streams, each with a node ID of its own
		connectOnce(t, m.TLS(), attacker, fmt.Sprint("attacker-", i))
	}
	connectOnce(t, m.TLS(), other, "other")

	harness.Eventually(t, "the other proxy's lines are logged", func() error {
		for _, line := range []string{"proxy connected: proxy=sidecar~127.0.0.9~other.",
			"proxy disconnected: proxy=sidecar~127.0.0.9~other."} {
			if !strings.Contains(m.Ashored.Log(), line) {
				return fmt.Errorf("the log has no line %q", line)
			}
		}
		return nil
	})
	lines := strings.Count(m.Ashored.Log(), "\n") - before
	t.Logf("%d lines were logged for %d resets", lines, resets)
	if lines > 30 {
		t.Errorf("%d lines were logged, want at most 30", lines)
	}
}

// resetStreams opens streams of discovery one after another, and resets each at once. It returns
// when the server has seen all.
func resetStreams(ctx context.Context, id *harness.Identity, address string, n int) (err error) {
	dialer := tls.Dialer{Config: &tls.Config{
		Certificates: []tls.Certificate{id.Certificate}, RootCAs: id.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	f := http2.NewFramer(conn, conn)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	var block bytes.Buffer
	headers := hpack.NewEncoder(&block)
	for _, h := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: address},
		{Name: ":path", Value: "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	} {
		h.Sensitive = true // not indexed, so that the block is the same for each stream
		if err := headers.WriteField(h); err != nil {
			return err
		}
	}
	done := make(chan error, 1)
	go func() { done <- untilPong(f) }() // ends with the connection
	for i := range n {
		stream := uint32(2*i + 1)
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
		if err == nil {
			err = f.WriteRSTStream(stream, http2.ErrCodeCancel)
		}
		if err != nil {
			return err
		}
	}
	if err := f.WritePing(false, [8]byte{1}); err != nil {
		return err
	}
	return <-done
}

// untilPong reads frames until the answer to a ping.
func untilPong(f *http2.Framer) error {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.GoAwayFrame:
			return fmt.Errorf("the connection was ended: %s %s", frame.ErrCode, frame.DebugData())
		case *http2.PingFrame:
			if frame.IsAck() {
				return nil
			}
		}
	}
}

// connectOnce opens a stream as a node of that name, waits until it is served, and ends it.
func connectOnce(t *testing.T, address string, id *harness.Identity, name string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{id.Certificate}, RootCAs: id.Roots, MinVersion: tls.VersionTLS12,
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // all was received
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		node := &corev3.Node{Id: fmt.Sprintf("sidecar~127.0.0.9~%s.shop~shop.svc.cluster.local", name)}
		err = s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node,
			TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"})
	}
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
}
