package gen

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ashore-mesh/ashore/push"
)

// aging are bounds that a test lives to see.
func aging() *push.Trust {
	return &push.Trust{Connections: push.ConnectionBounds{Age: 500 * time.Millisecond, Idle: 2 * time.Second}}
}

// meshDial opens a connection of a workload to a peer.
func meshDial(t *testing.T, ca *testCA, address string, alpn ...string) *tls.Conn {
	t.Helper()
	conn := tls.Client(dialUntil(t, address), &tls.Config{
		Certificates: []tls.Certificate{ca.leaf(t,
			leafOf{uri: "spiffe://cluster.local/ns/shop/sa/caller"})}, NextProtos: alpn, InsecureSkipVerify: true,
	})
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A connection whose caller showed a certificate is not used for ever, and nobody loses a request
// when it has its age: with both protocols, between two real Envoys under load.
func TestConnectionsEndUnderLoad(t *testing.T) {
	t.Parallel()
	const server, client = "127.0.65.5", "127.0.65.6"
	peersMeet(t, newTestCA(t), server, client, aging())
	const ages = 6
	for _, port := range []string{":18080", ":18081"} {
		dialUntil(t, client+port).Close()
		begin, n := time.Now(), 0
		for ; time.Since(begin) < ages*500*time.Millisecond; n++ {
			resp, err := http.Get("http://" + client + port)
			if err != nil {
				t.Fatalf("%s: request %d: %v", port, n, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: request %d gets %d", port, n, resp.StatusCode)
			}
		}
		t.Logf("%s: %d requests over %d ages of a connection", port, n, ages)
	}
}

// A kept HTTP/1 connection is answered until it has its age; the answer then says that it ends, and
// it does. One that is silent ends too.
func TestHTTP1ConnectionsEnd(t *testing.T) {
	t.Parallel()
	const server = "127.0.65.7"
	ca := newTestCA(t)
	peersMeet(t, ca, server, "127.0.65.8", aging())
	conn := meshDial(t, ca, server+":8080", "istio")
	in := bufio.NewReader(conn)
	for n := 0; ; n++ {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: web.example\r\n\r\n"); err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("request %d gets %d", n, resp.StatusCode)
		}
		if resp.Close {
			if n == 0 {
				t.Error("the first request ends the connection")
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last answer: %v, want the end", err)
	}
	silent := meshDial(t, ca, server+":8080", "istio")
	if _, err := io.WriteString(silent, "GET / HTTP/1.1\r\nHost: web.example\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, silent); err != nil {
		t.Errorf("a connection without further requests: %v, want the end", err)
	}
}

// Who does not heed that an HTTP/2 connection ends, and keeps it open by a request that does not
// end, gets no answer to another one on it.
func TestHTTP2ConnectionsTakeNothingAfterTheirAge(t *testing.T) {
	t.Parallel()
	const server = "127.0.65.9"
	ca := newTestCA(t)
	peersMeet(t, ca, server, "127.0.65.10", aging())
	conn := meshDial(t, ca, server+":8080", "h2")
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestBlock(t, "POST"),
		EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	awaitGoAway(t, f)
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: requestBlock(t, "GET"),
		EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteData(1, true, nil); err != nil { // what began before is answered
		t.Fatal(err)
	}
	answered := map[uint32]string{}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			break
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			answered[h.StreamID] = h.PseudoValue("status")
		}
	}
	if answered[1] != "200" {
		t.Errorf("the request from before gets %q, want 200", answered[1])
	}
	if got, ok := answered[3]; ok {
		t.Errorf("a request after the end was announced gets %s", got)
	}
}

// awaitGoAway reads until the server has said which request is the last.
func awaitGoAway(t *testing.T, f *http2.Framer) {
	t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("no GOAWAY: %v", err)
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok && g.LastStreamID == 1 {
			return
		}
	}
}

// requestBlock are the headers of a request, encoded.
func requestBlock(t *testing.T, method string) []byte {
	t.Helper()
	var out blockWriter
	e := hpack.NewEncoder(&out)
	for _, h := range []string{":method " + method, ":scheme https", ":authority web.example", ":path /"} {
		var name, value string
		if _, err := fmt.Sscan(h, &name, &value); err != nil {
			t.Fatal(err)
		}
		if err := e.WriteField(hpack.HeaderField{Name: name, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

type blockWriter []byte

func (b *blockWriter) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}
