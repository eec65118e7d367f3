package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// upstreamLink is one stream to one control plane, over a connection of its own.
type upstreamLink struct {
	address string            // set once
	conn    *grpc.ClientConn  // set once
	stream  grpc.ClientStream // set once
	end     context.CancelFunc
	opened  time.Time     // set once
	replies chan []byte   // written and closed by read
	done    chan struct{} // closed when read has ended
	readErr error         // written by read before it closes replies

	up     *upstream     // guarded by proxy.mu
	node   []byte        // for the first request; nil when it is out
	old    *upstreamLink // ends when this one is proven; nil: none
	proven bool
	silent int // how many times in a row it was asked, and said nothing at all until the next time
}

const (
	// rootsName is what the one resource of the mesh's roots is called.
	rootsName = "trust-bundle"
	// bypassedPorts is the member of its proxyMetadata that names ports of the workload which Envoy
	// does not stand before.
	bypassedPorts = "ASHORE_BYPASSED_PORTS"
	// maxSilence is how many questions in a row, a confirmGap apart, a control plane may leave without an answer: then it is left.
	maxSilence = 2
)

// A control plane that is stopped, or whose machine or network vanished, is noticed within pingGap + pingTimeout of the last that
// was heard of it. gRPC asks no more often than each 10 s, and a server of gRPC allows that if it is told so; ten thousand agents
// make it answer a thousand pings a second.
const (
	pingGap     = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// maxReply bounds one response of the control plane.
const maxReply = 1 << 30

// connect opens a stream. Errors are Dial's, or gRPC's.
func (p *proxy) connect(ctx context.Context, address string) (*upstreamLink, error) {
	raw, err := p.cfg.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	once := make(chan net.Conn, 1)
	once <- raw
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // what it gets is a connection that was verified
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errors.New("the connection has ended")
			}
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frameCodec{messages: encoding.GetCodecV2("proto")}), grpc.MaxCallRecvMsgSize(maxReply)),
		grpc.WithInitialWindowSize(512<<10), grpc.WithInitialConnWindowSize(1<<20),
		grpc.WithIdleTimeout(0),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingGap, Timeout: pingTimeout}))
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	alive, end := context.WithCancel(ctx)
	stream, err := conn.NewStream(alive, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources")
	if err != nil {
		end()
		return nil, errors.Join(err, conn.Close())
	}
	l := &upstreamLink{address: address, conn: conn, stream: stream, end: end, opened: time.Now(), replies: make(chan []byte), done: make(chan struct{})}
	go l.read(alive)
	return l, nil
}

// read hands over responses until the stream ends.
func (l *upstreamLink) read(alive context.Context) {
	defer close(l.done)
	defer close(l.replies)
	for {
		f := &frame{}
		if err := l.stream.RecvMsg(f); err != nil {
			l.readErr = err
			return
		}
		raw := bytes.Clone(f.in.ReadOnlyData())
		f.in.Free()
		select {
		case l.replies <- raw:
		case <-alive.Done():
			l.readErr = alive.Err()
			return
		}
	}
}

// close ends the stream and its connection, and those of the one before.
func (l *upstreamLink) close() {
	if l == nil {
		return
	}
	l.old.close()
	l.old = nil
	l.end()
	<-l.done
	_ = l.conn.Close() // fails only when it is closed already
}

// exchange talks on a stream until it ends, or a new one is due. Errors: errAgain for one of the two, or why it ended.
func (p *proxy) exchange(ctx context.Context, l *upstreamLink, due, renewed <-chan struct{}) error {
	proven := time.NewTimer(provenWait)
	defer proven.Stop()
	confirm := time.NewTicker(confirmGap)
	defer confirm.Stop()
	for {
		if err := p.speak(l); err != nil {
			return l.cause(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-due:
			return errAgain
		case <-renewed:
			p.log.Debug("the certificate was renewed: a new stream to the control plane is opened")
			return errAgain
		case <-l.up.wake:
		case <-proven.C:
			if p.cfg.SetRoots == nil {
				p.prove(l)
			}
		case <-confirm.C:
			if err := p.question(l); err != nil {
				return err
			}
		case raw, ok := <-l.replies:
			if !ok {
				return l.cause(io.EOF)
			}
			if err := p.hear(l, raw); err != nil {
				return err
			}
			p.prove(l)
		}
	}
}

// cause is why a stream ended: what receiving says, for sending says only that it did.
func (l *upstreamLink) cause(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	for range l.replies { // what came before the end is lost, and will be said again
	}
	if errors.Is(l.readErr, io.EOF) {
		return fmt.Errorf("control plane %s ended the stream", l.address)
	}
	return l.readErr
}

// speak sends what there is to say.
func (p *proxy) speak(l *upstreamLink) error {
	for {
		var a *ads.Ask
		p.locked(func() {
			if a = l.up.next(); a == nil {
				a = p.healthNews(l)
			}
		})
		if a == nil {
			return nil
		}
		a.Node, l.node = l.node, nil
		if err := l.stream.SendMsg(newFrame(a.Encode())); err != nil {
			return err
		}
	}
}

// healthNews is the report of the workload's health when the control plane does not know it, after the first request; nil
// otherwise. p.mu is held.
func (p *proxy) healthNews(l *upstreamLink) *ads.Ask {
	if l.node != nil || p.health == nil || p.health.sent {
		return nil
	}
	p.health.sent = true
	a := &ads.Ask{TypeURL: healthTypeURL}
	if p.health.words != "" {
		a.Rejected = &ads.Rejection{Code: int32(codes.Unavailable), Message: p.health.words}
	}
	return a
}

// hear takes in a response.
func (p *proxy) hear(l *upstreamLink, raw []byte) error {
	reply, err := ads.ReadReply(raw, ads.Limits{Names: maxProxyNames})
	if err != nil {
		return fmt.Errorf("control plane %s sends what cannot be understood: %w", l.address, err)
	}
	if reply.TypeURL == proxyConfigTypeURL {
		p.hearRoots(l, reply)
		return nil
	}
	if reply.TypeURL == probeTypeURL {
		p.hearProbe(l, reply)
		return nil
	}
	p.locked(func() { err = p.relay.take(l.up, reply, p.now()) })
	return err
}

// askRoots asks for the mesh's roots. None are claimed: what the control plane says is compared with what the workload has,
// which may have come with a certificate from another replica.
func (l *upstreamLink) askRoots() {
	i := ads.NewInterest(proxyConfigTypeURL, nil)
	i.Want(true, map[string]struct{}{rootsName: {}})
	l.up.interests = append(l.up.interests, i)
}

// question asks for the roots once more: the answer confirms what is held, and repeats roots that could not be kept. Errors: the
// control plane has not said anything for too long.
func (p *proxy) question(l *upstreamLink) error {
	if p.cfg.SetProbe != nil {
		p.noProbe() // it was asked for, and had the time to say so
	}
	if p.cfg.SetRoots == nil {
		return nil
	}
	if l.silent++; l.silent > maxSilence {
		return fmt.Errorf("control plane %s keeps the stream open and does not answer", l.address)
	}
	p.locked(func() {
		if i := l.up.find(proxyConfigTypeURL); i != nil {
			i.Again(rootsName)
		}
	})
	return nil
}

// hearRoots hands the mesh's roots on, and acknowledges them once they were taken.
func (p *proxy) hearRoots(l *upstreamLink, reply *ads.Reply) {
	var pem []string
	var err error
	bypassed := ""
	for _, it := range reply.Items {
		var m meshv1alpha1.ProxyConfig
		if err = proto.Unmarshal(it.Body, &m); err != nil {
			err = fmt.Errorf("read the mesh's roots: %w", err)
			break
		}
		pem = append(pem, m.GetCaCertificatesPem()...)
		bypassed = m.GetProxyMetadata()[bypassedPorts]
	}
	if err == nil && len(reply.Items) > 0 {
		err = p.cfg.SetRoots(pem)
	}
	var rejected *ads.Rejection
	if err != nil {
		rejected = &ads.Rejection{Code: int32(codes.InvalidArgument), Message: err.Error()}
		p.log.Warn("the mesh's roots are not taken", "error", err)
	}
	p.locked(func() {
		if len(reply.Items) > 0 {
			p.bypassed = bypassed
		}
		if i := l.up.find(proxyConfigTypeURL); i != nil {
			i.Take(reply)
			i.Answer(rejected)
		}
	})
}
