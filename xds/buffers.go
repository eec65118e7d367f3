package xds

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// buffers are the buffers for what clients send. They come in steps of half a power of two, since a
// node has 60 KB and a subscription 100 KB, for which gRPC's own pool takes a megabyte each; and
// they are not cleared before they are used again, for each is overwritten as far as it is read.
// Safe for concurrent use.
type buffers struct {
	steps [2 * maxBufferBits]sync.Pool // of *[]byte; capacity by size
}

// minBufferBits and maxBufferBits are the smallest and largest capacities, as powers of two.
const minBufferBits, maxBufferBits = 10, 18

var _ mem.BufferPool = (*buffers)(nil)

// step is the smallest step that holds size bytes, and its capacity; -1 when none does.
func step(size int) (i, capacity int) {
	if size > 1<<maxBufferBits {
		return -1, size
	}
	n := max(bits.Len(uint(size-1)), minBufferBits) // 1<<n holds it
	if half := 3 << (n - 2); n > minBufferBits && size <= half {
		return 2*n - 1, half
	}
	return 2 * n, 1 << n
}

// Get implements mem.BufferPool. What the buffer holds is left from its last use.
func (p *buffers) Get(size int) *[]byte {
	i, capacity := step(max(size, 1))
	if i < 0 {
		b := make([]byte, size)
		return &b
	}
	if b, ok := p.steps[i-1].Get().(*[]byte); ok {
		*b = (*b)[:size]
		return b
	}
	b := make([]byte, size, capacity)
	return &b
}

// Put implements mem.BufferPool.
func (p *buffers) Put(b *[]byte) {
	if cap(*b) == 0 {
		return
	}
	if i, capacity := step(cap(*b)); i >= 0 && capacity == cap(*b) {
		p.steps[i-1].Put(b)
	}
}
