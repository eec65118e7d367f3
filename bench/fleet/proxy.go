package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/ashore-mesh/ashore/internal/task"
)

const (
	// Envoy's back-off after a lost or refused stream: jittered, doubling.
	firstBackoff, lastBackoff = 500 * time.Millisecond, 30 * time.Second
	// maxMessage bounds a response.
	maxMessage = 1 << 30
	// window lets a response flow without waiting for the reader.
	window = 1 << 20
)

// watch is what one measurement waits for: a marker in a response of one type.
type watch struct {
	marker  []byte
	typeURL string
	start   time.Time
	seen    chan time.Duration // one value a proxy
}

// proxy is one simulated Envoy. One goroutine runs it.
type proxy struct {
	*Simulator                     // set once; shared
	node       *corev3.Node        // set once
	tls        *tls.Config         // set once; nil: without TLS
	onReady    func(time.Duration) // set once; called when everything asked for has arrived the first time

	// the following belong to the goroutine of run
	started time.Time
	want    map[string]map[string]bool // type -> names asked for; value: received
	got     map[string]bool            // types answered at least once
	hit     *watch                     // the last one that was seen

	ready          atomic.Bool
	received, lost atomic.Int64
	lastErr        atomic.Pointer[error]
}

// run keeps the proxy connected as Envoy does until ctx ends.
func (p *proxy) run(ctx context.Context, addr string) {
	p.started = time.Now()
	for back := firstBackoff; ; back = min(2*back, lastBackoff) {
		err := p.connect(ctx, addr)
		if ctx.Err() != nil {
			return
		}
		p.lost.Add(1)
		p.lastErr.Store(&err)
		if p.ready.Load() {
			back = firstBackoff
		}
		if !task.Sleep(ctx, rand.N(back)) {
			return
		}
	}
}

// connect opens one stream and serves it until it ends.
func (p *proxy) connect(ctx context.Context, addr string) error {
	st, conn, err := open(ctx, addr, p.tls)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := p.begin(st); err != nil {
		return err
	}
	for {
		if err := p.receive(st); err != nil {
			return err
		}
	}
}

// open dials addr, with TLS when there is a configuration for it, and opens a stream of rawCodec.
func open(ctx context.Context, addr string, secure *tls.Config) (grpc.ClientStream, *grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.ForceCodecV2(rawCodec{})),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
	if err != nil {
		return nil, nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, deltaMethod)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a stream to %s: %w", addr, err), conn.Close())
	}
	return st, conn, nil
}

// begin sends the first request of a stream: clusters, with the node.
func (p *proxy) begin(st grpc.ClientStream) error {
	p.want = map[string]map[string]bool{EDS: {}, rdsType: {}, ecdsType: {}}
	p.got = map[string]bool{}
	return st.SendMsg(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: cdsType, Node: p.node})
}

// receive takes one response, acknowledges it, asks for what it names, and reports what was waited
// for.
func (p *proxy) receive(st grpc.ClientStream) error {
	var raw mem.Buffer
	if err := st.RecvMsg(&raw); err != nil {
		return fmt.Errorf("%s: %w", p.node.GetId(), err)
	}
	defer raw.Free()
	return p.handle(st, raw.ReadOnlyData())
}

func (p *proxy) handle(st grpc.ClientStream, raw []byte) error {
	p.received.Add(int64(len(raw)))
	r := parse(raw)
	ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.typeURL, ResponseNonce: r.nonce}
	if err := st.SendMsg(ack); err != nil {
		return err
	}
	first := !p.got[r.typeURL]
	p.got[r.typeURL] = true
	for _, res := range r.resources {
		if arrived, asked := p.want[r.typeURL][string(res.name)]; asked && !arrived {
			p.want[r.typeURL][string(res.name)] = true
		}
	}
	for _, name := range r.removed { // the mesh changed since the proxy asked
		delete(p.want[r.typeURL], name)
	}
	if err := p.follow(st, r); err != nil {
		return err
	}
	if first && r.typeURL == cdsType {
		if err := st.SendMsg(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: ldsType}); err != nil {
			return err
		}
	}
	p.report(raw, r.typeURL)
	return nil
}

// follow asks for the resources that those of r name and that were not asked for yet.
func (p *proxy) follow(st grpc.ClientStream, r response) error {
	fresh := map[string][]string{}
	for _, res := range r.resources {
		for _, to := range p.refs.of(r.typeURL, res.value) {
			if _, known := p.want[to.typeURL][to.name]; !known {
				p.want[to.typeURL][to.name] = false
				fresh[to.typeURL] = append(fresh[to.typeURL], to.name)
			}
		}
	}
	for _, typ := range []string{EDS, rdsType, ecdsType} {
		names := fresh[typ]
		if len(names) == 0 {
			continue
		}
		slices.Reverse(names) // Envoy names the newest first
		ask := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ, ResourceNamesSubscribe: names}
		if err := st.SendMsg(ask); err != nil {
			return err
		}
	}
	return nil
}

// report tells the fleet when the proxy is complete for the first time, and when the marker came.
func (p *proxy) report(raw []byte, typeURL string) {
	if !p.ready.Load() && p.complete() {
		p.ready.Store(true)
		p.onReady(time.Since(p.started))
	}
	if w := p.current.Load(); w != nil && p.hit != w && w.typeURL == typeURL && bytes.Contains(raw, w.marker) {
		p.hit = w
		w.seen <- time.Since(w.start)
	}
}

// complete says that everything asked for has arrived.
func (p *proxy) complete() bool {
	if !p.got[cdsType] || !p.got[ldsType] {
		return false
	}
	for _, names := range p.want {
		for _, arrived := range names {
			if !arrived {
				return false
			}
		}
	}
	return true
}
