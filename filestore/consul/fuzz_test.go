package consul

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config/configtest"
)

// someCommits are one of each kind of change.
func someCommits(t testing.TB) []*commit {
	t.Helper()
	o, err := keep(configtest.Object("a", "a.test"))
	if err != nil {
		t.Fatal(err)
	}
	return []*commit{
		{Records: []recordWrite{{Table: []byte("t"), Name: []byte("\xff"), Value: []byte{}}, {Table: []byte("t"), Name: []byte("b")}}},
		{Objects: &objectsWrite{Who: "me", When: time.Unix(1, 0).UTC(), Writes: []objectWrite{{nameOf(configtest.Key("a")), o}, {objectName: nameOf(configtest.Key("b"))}}}},
	}
}

// some is a state after each of them, and an entry of them.
func some(t testing.TB) (*state, []byte) {
	t.Helper()
	s := (&state{}).begin("log", "entry")
	var bodies []json.RawMessage
	for _, c := range someCommits(t) {
		b, err := c.encode()
		if err != nil {
			t.Fatal(err)
		}
		s, bodies = s.apply(c, keeping{most: 10, bytes: 1 << 20}), append(bodies, b)
	}
	c, raw, err := pack(encodeCommits(bodies))
	if err != nil {
		t.Fatal(err)
	}
	line, err := encodeLine(about{Format: format, position: s.position, At: time.Unix(1, 0).UTC(), content: c})
	if err != nil {
		t.Fatal(err)
	}
	return s, append(line, raw...)
}

// What is written is read as it was.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	want, entry := some(t)
	got, err := readEntry(entry)
	if err != nil {
		t.Fatal(err)
	}
	equalStates(t, want, got)
	b, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err = decodeState(b, keeping{}); err != nil {
		t.Fatal(err)
	}
	equalStates(t, want, got)
	if _, ok := got.records.Get(recordKey{Table: "t", Name: "\xff"}); !ok {
		t.Error("a record is lost")
	}
}

// readEntry applies an entry to nothing.
func readEntry(b []byte) (*state, error) {
	a, raw, err := parseEntry(b)
	if err != nil {
		return nil, err
	}
	if raw, err = a.unpack(raw); err != nil {
		return nil, err
	}
	commits, err := decodeCommits(raw)
	if err != nil {
		return nil, err
	}
	s := (&state{}).begin(a.Log, a.Entry)
	for _, c := range commits {
		s = s.apply(c, keeping{most: 10, bytes: 1 << 20})
	}
	return s, nil
}

// Whatever stands in Consul is read or refused, and what was read can be written and read again.
func FuzzEntry(f *testing.F) {
	_, entry := some(f)
	f.Add(entry)
	f.Add([]byte(`{"format":3,"log":"l","sequence":1,"entry":"e","at":"2026-01-01T00:00:00Z","size":2,"sum":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"}` + "\n[]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := readEntry(b)
		if err != nil {
			return
		}
		again(t, s)
	})
}

// FuzzCommits is about contents whose checksum is right.
func FuzzCommits(f *testing.F) {
	for _, c := range someCommits(f) {
		b, err := c.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encodeCommits([]json.RawMessage{b}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		commits, err := decodeCommits(b)
		if err != nil {
			return
		}
		s := (&state{}).begin("log", "entry")
		for _, c := range commits {
			s = s.apply(c, keeping{most: 10, bytes: 1 << 20})
		}
		again(t, s)
	})
}

// FuzzSnapshot is about snapshots whose checksum is right.
func FuzzSnapshot(f *testing.F) {
	s, _ := some(f)
	b, err := s.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeState(b, keeping{most: 10, bytes: 1 << 20}); err == nil {
			again(t, s)
		}
	})
}

// FuzzHead is about the key head.
func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"format":3,"log":"l","sequence":7,"entry":"e","begun":"2026-01-01T00:00:00Z","snapshot":{"sequence":3,"entry":"d","size":1,"sum":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","chunks":"a-b","count":1}}`))
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

// again writes a state and reads it.
func again(t *testing.T, s *state) {
	t.Helper()
	b, err := s.encode()
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	got, err := decodeState(b, keeping{most: 10, bytes: 1 << 20})
	if err != nil {
		t.Fatalf("what was read is written as what cannot be read: %v\n%s", err, b)
	}
	equalStates(t, s, got)
}
