package unfinished

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"golang.org/x/time/rate"
)

// ErrTooMuch reports that a limit is exceeded; the connection has to be closed.
var ErrTooMuch = errors.New("incomplete requests, or tiny or padded frames, exceed the limit of the workload")

// Budget is what several connections may hold together. Safe for concurrent use.
type Budget struct {
	most int // set once

	mu   sync.Mutex
	held int // guarded by mu
}

// NewBudget makes one of that many bytes.
func NewBudget(most int) *Budget { return &Budget{most: most} }

// add counts more, or less when negative, and says whether that is within the budget.
func (b *Budget) add(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held += n
	return b.held <= b.most
}

// The parts of HTTP/2 that matter, RFC 9113.
const (
	prefaceSize, headerSize                 = 24, 9
	frameData, frameHeaders, frameRSTStream = 0, 1, 3
	flagEndStream, flagPadded               = 0x1, 0x8
)

const (
	// prefixSize is how long the beginning of a message of gRPC is: a flag, and its length in four
	// bytes.
	prefixSize = 5
	// frameCost is what a server holds for each frame besides its data.
	frameCost = 96
	// A frame with less data than tinyFrame costs more than it carries, and its message may be
	// complete but not read yet. tinyBurst of them are allowed at once, and tinyRate a second.
	tinyFrame, tinyBurst, tinyRate = 64, 4096, 100
)

// Conn is the server's end of a connection of HTTP/2, decrypted. It is read by one goroutine.
type Conn struct {
	net.Conn
	cut func() // called once when the connection is closed because of the budget

	skip    int              // how much follows that does not matter
	header  []byte           // of the frame that is being read
	frame   frame            // whose header was read last
	streams map[uint32]*tail // messages that have begun, by stream
	tiny    *rate.Limiter    // frames of data that are smaller than tinyFrame
	refused bool             // tiny was exceeded, or a frame is padded

	mu     sync.Mutex
	budget *Budget // guarded by mu
	held   int     // guarded by mu
	done   bool    // guarded by mu: closed
}

// frame is what follows of one.
type frame struct {
	stream uint32
	data   int  // bytes of data
	ends   bool // the stream ends with it
}

// tail is the message of a stream that is not complete.
type tail struct {
	prefix []byte // shorter than prefixSize: not all of it has come
	rest   int    // bytes to come after the prefix
	cost   int
}

// NewConn makes one of a connection on which nothing has been read. cut is called when it is closed
// because of the budget.
func NewConn(c net.Conn, b *Budget, cut func()) *Conn {
	return &Conn{Conn: c, budget: b, cut: cut, skip: prefaceSize, streams: map[uint32]*tail{},
		tiny: rate.NewLimiter(tinyRate, tinyBurst)}
}

// Read implements net.Conn. Errors besides: ErrTooMuch.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	change := c.scan(b[:n])
	if c.refused {
		c.cut()
		return 0, ErrTooMuch
	}
	if change == 0 {
		return n, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return n, err
	}
	c.held += change
	if !c.budget.add(change) && change > 0 {
		c.cut()
		return 0, ErrTooMuch
	}
	return n, err
}

// Move counts the connection toward another budget from now on.
func (c *Conn) Move(b *Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.budget.add(-c.held)
		c.budget = b
		b.add(c.held)
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.mu.Lock()
	if !c.done {
		c.done = true
		c.budget.add(-c.held)
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// scan takes in what was read, and returns by how much more is held.
func (c *Conn) scan(b []byte) (change int) {
	for len(b) > 0 {
		switch {
		case c.skip > 0:
			n := min(c.skip, len(b))
			c.skip, b = c.skip-n, b[n:]
		case c.frame.data > 0:
			n := min(c.frame.data, len(b))
			change += c.take(c.frame.stream, b[:n])
			c.frame.data, b = c.frame.data-n, b[n:]
			change += c.endFrame()
		default:
			n := min(headerSize-len(c.header), len(b))
			c.header, b = append(c.header, b[:n]...), b[n:]
			if len(c.header) == headerSize {
				change += c.begin()
				c.header = c.header[:0]
			}
		}
	}
	return change
}

// begin takes in the header of a frame.
func (c *Conn) begin() (change int) {
	h := c.header
	size, kind, flags := int(h[0])<<16|int(h[1])<<8|int(h[2]), h[3], h[4]
	f := frame{stream: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31)}
	f.ends = kind == frameRSTStream || (kind == frameData || kind == frameHeaders) && flags&flagEndStream != 0
	c.frame = f
	if kind != frameData {
		c.skip = size
		return c.endFrame()
	}
	if flags&flagPadded != 0 || size < tinyFrame && !c.tiny.Allow() {
		c.refused = true // clients of gRPC do not pad
	}
	c.frame.data = size
	if t := c.streams[f.stream]; t != nil {
		t.cost += frameCost
		change += frameCost
	}
	return change + c.endFrame()
}

// endFrame continues after the data of a frame, when all of it has arrived.
func (c *Conn) endFrame() (change int) {
	if c.frame.data > 0 || !c.frame.ends {
		return 0
	}
	if t := c.streams[c.frame.stream]; t != nil {
		delete(c.streams, c.frame.stream)
		change -= t.cost
	}
	return change
}

// take takes in data of a stream: messages, each after its prefix.
func (c *Conn) take(stream uint32, b []byte) (change int) {
	t := c.streams[stream]
	for len(b) > 0 {
		if t == nil {
			t = &tail{cost: frameCost}
			c.streams[stream] = t
			change += t.cost
		}
		var n int
		if len(t.prefix) < prefixSize {
			n = min(prefixSize-len(t.prefix), len(b))
			t.prefix = append(t.prefix, b[:n]...)
			if len(t.prefix) == prefixSize {
				t.rest = int(binary.BigEndian.Uint32(t.prefix[1:]))
			}
		} else {
			n = min(t.rest, len(b))
			t.rest -= n
		}
		b = b[n:]
		t.cost += n
		change += n
		if len(t.prefix) == prefixSize && t.rest == 0 {
			delete(c.streams, stream)
			change -= t.cost
			t = nil
		}
	}
	return change
}
