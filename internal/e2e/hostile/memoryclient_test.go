package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// unfinishedSize is the length of the requests of a rawClient, of which it never sends the last
// byte.
const unfinishedSize = 4<<20 - 1

// rawClient is a client of discovery that sends frames as it likes. It keeps to the server's flow
// control.
type rawClient struct {
	conn   net.Conn
	framer *http2.Framer
	space  chan struct{} // cap 1; written by read when more may be sent

	mu     sync.Mutex // held while a frame is written too
	err    error      // guarded by mu: why the connection ended
	first  int        // guarded by mu: what may be sent on a new stream
	window map[uint32]int
	sent   map[uint32]int
}

func dialRaw(ctx context.Context, address string, own *tls.Certificate) (*rawClient, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*own}}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	c := &rawClient{conn: conn, framer: http2.NewFramer(conn, conn), space: make(chan struct{}, 1), first: 65535,
		window: map[uint32]int{0: 65535}, sent: map[uint32]int{}}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	if err := c.framer.WriteSettings(); err != nil {
		return nil, err
	}
	go c.read()
	return c, nil
}

// open begins a call.
func (c *rawClient) open(stream uint32) error {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"},
		{":path", "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"}, {":authority",
			"x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window[stream] = c.first
	return c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(),
		EndHeaders: true})
}

// fill sends more of a request, in frames of that size, as far as the server lets it and at most so
// much.
func (c *rawClient) fill(ctx context.Context, stream uint32, size, most int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := bytes.Buffer{}
	f := http2.NewFramer(&w, nil)
	for most > 0 && c.err == nil && ctx.Err() == nil {
		n, begins := size, c.sent[stream] == 0
		if begins {
			n = max(size, 5) // it begins with its length
		}
		n = min(n, c.window[0], c.window[stream], unfinishedSize+4-c.sent[stream])
		if n <= 0 || begins && n < 5 {
			break
		}
		data := make([]byte, n)
		if begins {
			binary.BigEndian.PutUint32(data[1:], unfinishedSize)
		}
		if err := f.WriteData(stream, false, data); err != nil {
			return err
		}
		c.window[0] -= n
		c.window[stream] -= n
		c.sent[stream] += n
		most -= n
	}
	if _, err := c.conn.Write(w.Bytes()); err != nil && c.err == nil {
		c.err = err
	}
	return c.err
}

// wait waits until more may be sent.
func (c *rawClient) wait(ctx context.Context) {
	select {
	case <-c.space:
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
}

// read takes in what the server sends.
func (c *rawClient) read() {
	for {
		f, err := c.framer.ReadFrame()
		c.mu.Lock()
		if err == nil {
			err = c.take(f)
		}
		if err != nil {
			c.err = err
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		select {
		case c.space <- struct{}{}:
		default:
		}
	}
}

func (c *rawClient) take(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if n, ok := f.Value(http2.SettingInitialWindowSize); ok {
			for s := range c.window {
				if s != 0 {
					c.window[s] += int(n) - c.first
				}
			}
			c.first = int(n)
		}
		return c.framer.WriteSettingsAck()
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		c.window[f.StreamID] += int(f.Increment)
	case *http2.RSTStreamFrame:
		delete(c.window, f.StreamID)
	case *http2.HeadersFrame:
		if f.StreamEnded() {
			delete(c.window, f.StreamID)
		}
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server goes away: %v %s", f.ErrCode, f.DebugData())
	}
	return nil
}
