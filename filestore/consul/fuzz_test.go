package consul

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// someItems are one of each kind, with a value that is compressed and one that is not.
func someItems(size int) []item {
	return []item{
		{Table: "t", Name: "a\x00b", Version: "v", Value: bytes.Repeat([]byte("x"), size)},
		{Table: "t", Name: "gone"},
		{Table: "t", Name: "empty", Value: []byte{}},
	}
}

// What is written is read as it was.
func TestItems(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 100 << 10} {
		c, body, err := encodeItems(someItems(size))
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.decodeItems(body)
		if d := cmp.Diff(someItems(size), got); err != nil || d != "" {
			t.Errorf("%d bytes: %v (-want +got):\n%s", size, err, d)
		}
		body[len(body)/2] ^= 1
		if _, err := c.decodeItems(body); err == nil {
			t.Errorf("%d bytes: damage is not noticed", size)
		}
	}
}

// Whatever is in an entry is read or refused, and what was read can be written and read again.
func FuzzEntry(f *testing.F) {
	c, body, err := encodeItems(someItems(10))
	if err != nil {
		f.Fatal(err)
	}
	line, err := encodeLine(entry{Format: format, Revision: 1, ID: "id", content: c})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(line, body...))
	f.Add([]byte(`{"format":5,"size":9000000000,"packed":true,"sum":"` + sumOf(nil) + `"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, body, err := parseEntry(b)
		if err != nil {
			return
		}
		items, err := e.decodeItems(body)
		if err != nil {
			return
		}
		again, body, err := encodeItems(items)
		if err != nil {
			t.Fatal(err)
		}
		got, err := again.decodeItems(body)
		if d := cmp.Diff(items, got); err != nil || d != "" {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
	})
}

// Whatever is in the key head is read or refused, and what was read can be written and read again.
func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"format":5,"log":"l","revision":7,"id":"e",
		"snapshot":{"revision":3,"id":"d","size":1,"sum":"x","blob":"snapshot/a","parts":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHead(b)
		if err != nil {
			return
		}
		line, err := encodeLine(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseHead(line); err != nil {
			t.Errorf("what was read is written as what cannot be read: %v\n%s", err, line)
		}
	})
}
