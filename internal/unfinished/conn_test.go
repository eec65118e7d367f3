package unfinished

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
)

// readConn is a connection that has been sent what it reads.
type readConn struct {
	net.Conn
	io.Reader
	closed bool
}

func (c *readConn) Read(b []byte) (int, error) { return c.Reader.Read(b) }
func (c *readConn) Close() error               { c.closed = true; return nil }

// message is a message of gRPC of that many bytes.
func message(size int) []byte {
	return append([]byte{0, 0, byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, size)...)
}

// Incomplete messages count with the cost of their frames, however the bytes arrive.
func TestHeld(t *testing.T) {
	t.Parallel()
	data := func(t *testing.T, f *http2.Framer, stream uint32, end bool, b []byte) {
		t.Helper()
		if err := f.WriteData(stream, end, b); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		send func(t *testing.T, f *http2.Framer)
		want int
	}{
		"a whole message":    {func(t *testing.T, f *http2.Framer) { data(t, f, 1, false, message(1000)) }, 0},
		"no data":            {func(t *testing.T, f *http2.Framer) { data(t, f, 1, false, nil) }, 0},
		"an empty message":   {func(t *testing.T, f *http2.Framer) { data(t, f, 1, false, message(0)) }, 0},
		"a part":             {func(t *testing.T, f *http2.Framer) { data(t, f, 1, false, message(1000)[:300]) }, 300 + frameCost},
		"a part of a prefix": {func(t *testing.T, f *http2.Framer) { data(t, f, 1, false, message(1000)[:3]) }, 3 + frameCost},
		"a part in frames of a byte": {func(t *testing.T, f *http2.Framer) {
			for _, b := range message(1000)[:300] {
				data(t, f, 1, false, []byte{b})
			}
		}, 300 * (1 + frameCost)},
		"its rest": {func(t *testing.T, f *http2.Framer) {
			data(t, f, 1, false, message(1000)[:300])
			data(t, f, 1, false, message(1000)[300:])
		}, 0},
		"its rest and a part of the next": {func(t *testing.T, f *http2.Framer) {
			data(t, f, 1, false, message(1000)[:300])
			data(t, f, 1, false, append(message(1000)[300:], message(9)[:7]...))
		}, 7 + frameCost},
		"several streams": {func(t *testing.T, f *http2.Framer) {
			data(t, f, 1, false, message(1000)[:300])
			data(t, f, 3, false, message(1000)[:200])
			data(t, f, 5, false, message(1000))
			data(t, f, 3, false, message(1000)[200:])
		}, 300 + frameCost},
		"a stream that ends": {func(t *testing.T, f *http2.Framer) {
			data(t, f, 1, false, message(1000)[:300])
			data(t, f, 1, true, nil)
		}, 0},
		"a stream that is reset": {func(t *testing.T, f *http2.Framer) {
			data(t, f, 1, false, message(1000)[:300])
			if err := f.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
				t.Fatal(err)
			}
		}, 0},
		"other frames": {func(t *testing.T, f *http2.Framer) {
			data(t, f, 1, false, message(1000)[:300])
			if err := errors.Join(f.WriteSettings(), f.WritePing(false, [8]byte{}), f.WriteWindowUpdate(0, 7),
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82},
					EndHeaders: true})); err != nil {
				t.Fatal(err)
			}
			data(t, f, 1, false, message(1000)[300:400])
		}, 400 + 2*frameCost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent bytes.Buffer
			sent.WriteString(http2.ClientPreface)
			tc.send(t, http2.NewFramer(&sent, nil))
			for step := 1; step <= sent.Len(); step += 1 + step/3 {
				b := NewBudget(1 << 20)
				inner := &readConn{Reader: bytes.NewReader(sent.Bytes())}
				c := NewConn(inner, b, func() { t.Error("it is cut") })
				got, err := io.ReadAll(readerOf(c, step))
				if err != nil || !bytes.Equal(got, sent.Bytes()) {
					t.Fatalf("%d bytes at a time: read %d bytes of %d, error %v", step, len(got), sent.Len(), err)
				}
				if b.held != tc.want {
					t.Fatalf("%d bytes at a time: %d bytes are held, want %d", step, b.held, tc.want)
				}
				for range 2 {
					if err := c.Close(); err != nil || b.held != 0 || !inner.closed {
						t.Fatalf("closed: error %v, %d bytes are held", err, b.held)
					}
				}
			}
		})
	}
}

// A connection with a padded frame ends.
func TestPadding(t *testing.T) {
	t.Parallel()
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	if err := http2.NewFramer(&sent, nil).WriteDataPadded(1, false, message(10), make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	cuts := 0
	c := NewConn(&readConn{Reader: &sent}, NewBudget(1<<20), func() { cuts++ })
	if _, err := io.ReadAll(c); !errors.Is(err, ErrTooMuch) || cuts != 1 {
		t.Errorf("read: %v, cut %d times", err, cuts)
	}
}

// readerOf reads so many bytes at a time.
func readerOf(r io.Reader, step int) io.Reader {
	return readFunc(func(b []byte) (int, error) { return r.Read(b[:min(step, len(b))]) })
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// The connections of one budget are read until they hold too much together.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	if err := http2.NewFramer(&sent, nil).WriteData(1, false, message(10_000)[:600]); err != nil {
		t.Fatal(err)
	}
	b, cuts := NewBudget(1500), 0
	open := func() *Conn {
		return NewConn(&readConn{Reader: bytes.NewReader(sent.Bytes())}, b, func() { cuts++ })
	}
	first, second, third := open(), open(), open()
	for _, c := range []*Conn{first, second} {
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadAll(third); !errors.Is(err, ErrTooMuch) || cuts != 1 {
		t.Fatalf("error %v, cut %d times", err, cuts)
	}
	if err := errors.Join(third.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(open()); err != nil {
		t.Errorf("after others have ended: %v", err)
	}
}

// Complete messages in tiny frames do not count against the budget, but their number is limited.
func TestTinyFrames(t *testing.T) {
	t.Parallel()
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&sent, nil)
	for range 2 * tinyBurst {
		if err := f.WriteData(1, false, message(0)); err != nil {
			t.Fatal(err)
		}
	}
	cuts := 0
	c := NewConn(&readConn{Reader: bytes.NewReader(sent.Bytes())}, NewBudget(1<<20), func() { cuts++ })
	if _, err := io.ReadAll(c); !errors.Is(err, ErrTooMuch) || cuts != 1 {
		t.Errorf("error %v, cut %d times", err, cuts)
	}
}
