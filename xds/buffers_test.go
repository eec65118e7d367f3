package xds

import "testing"

// A buffer is as long as asked for, at most half as large again, and used again.
func TestBuffers(t *testing.T) {
	t.Parallel()
	var p buffers
	for size := 0; size <= 1<<maxBufferBits+1; size += 1 + size/7 {
		b := p.Get(size)
		if len(*b) != size || size > 1<<minBufferBits && cap(*b) > size+size/2 {
			t.Fatalf("of %d bytes: %d of %d", size, len(*b), cap(*b))
		}
		if i, capacity := step(cap(*b)); i >= 0 && capacity != cap(*b) && cap(*b) > 0 {
			t.Fatalf("of %d bytes: the step of %d bytes is one of %d", size, cap(*b), capacity)
		}
		p.Put(b)
	}
	again := false
	for range 100 { // the race detector makes a pool forget now and then
		b := p.Get(100_000)
		(*b)[0] = 7
		p.Put(b)
		again = again || (*p.Get(99_000))[0] == 7
	}
	if !again {
		t.Error("no buffer is used again")
	}
	p.Put(&[]byte{})
}
