package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// wantCode wants a refusal with that status; 0: none.
func wantCode(t *testing.T, what string, err error, code int) {
	t.Helper()
	var no *refusal
	switch {
	case code == 0 && err == nil:
	case code == 0 || !errors.As(err, &no) || no.code != code:
		t.Errorf("%s: %v, want status %d", what, err, code)
	}
}

func network(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 32)
}

// One address has half of the requests, so that others get in.
func TestGateRequests(t *testing.T) {
	t.Parallel()
	g := newServer(t, Config{Requests: 4}).gate
	now := time.Now()
	var in []*visit
	enter := func(from, code int) {
		t.Helper()
		v, err := g.enter(network(from), now)
		wantCode(t, fmt.Sprintf("address %d", from), err, code)
		if err == nil {
			in = append(in, v)
		}
	}
	enter(1, 0)
	enter(1, 0)
	enter(1, http.StatusServiceUnavailable)
	enter(2, 0)
	enter(3, 0)
	enter(4, http.StatusServiceUnavailable)
	if g.inside() != 4 {
		t.Errorf("%d are inside, want 4", g.inside())
	}
	in[0].leave()
	enter(1, 0)
	for _, v := range in[1:] {
		v.leave()
	}
	if g.inside() != 0 || len(g.households) != 0 || g.all != (household{}) {
		t.Errorf("%d are inside and %v are remembered after all have left", g.inside(), g.households)
	}
}

// An address makes so many requests a second; large bodies count for more.
func TestGateRate(t *testing.T) {
	t.Parallel()
	g := newServer(t, Config{Rate: 1}).gate
	now := time.Now()
	enter := func(from, code int) {
		t.Helper()
		v, err := g.enter(network(from), now)
		wantCode(t, fmt.Sprintf("address %d", from), err, code)
		if err != nil {
			return
		}
		v.leave()
	}
	for range 10 {
		enter(1, 0)
	}
	enter(1, http.StatusTooManyRequests)
	enter(2, 0)
	now = now.Add(time.Second)
	enter(1, 0)
	enter(1, http.StatusTooManyRequests)
	v, err := g.enter(network(3), now)
	wantCode(t, "a large one", err, 0)
	if _, err := v.read(strings.NewReader(strings.Repeat("a", 20*chargeUnit)), -1); err != nil {
		t.Fatal(err)
	}
	v.leave()
	enter(3, http.StatusTooManyRequests)
}

// endless is a body that never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// late is a body that does not come.
type late struct{}

func (late) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// A body is bounded whatever its sender says of it, and what is read is what was sent.
func TestGateRead(t *testing.T) {
	t.Parallel()
	const most = 100_000
	for name, tc := range map[string]struct {
		body   io.Reader
		length int64
		size   int
		code   int
	}{
		"none":                {strings.NewReader(""), 0, 0, 0},
		"small":               {strings.NewReader("abc"), 3, 3, 0},
		"small, not told":     {strings.NewReader("abc"), -1, 3, 0},
		"as large as can be":  {strings.NewReader(strings.Repeat("a", most)), most, most, 0},
		"so, not told":        {strings.NewReader(strings.Repeat("a", most)), -1, most, 0},
		"too large":           {endless{}, most + 1, 0, http.StatusRequestEntityTooLarge},
		"too large, not told": {strings.NewReader(strings.Repeat("a", most+1)), -1, 0, http.StatusRequestEntityTooLarge},
		"without end":         {endless{}, -1, 0, http.StatusRequestEntityTooLarge},
		"late":                {late{}, 10, 0, http.StatusRequestTimeout},
		"broken off":          {io.MultiReader(strings.NewReader("a"), errReader{}), 10, 0, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newServer(t, Config{MaxBytes: most}).gate
			v, err := g.enter(network(1), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			data, err := v.read(tc.body, tc.length)
			wantCode(t, "read", err, tc.code)
			if len(data) != tc.size {
				t.Errorf("%d bytes were read, want %d", len(data), tc.size)
			}
			if want := int64(max(0, len(data)-smallBody)); v.bytes > most || v.bytes < want {
				t.Errorf("%d bytes are reserved for %d, want %d or a bit more", v.bytes, len(data), want)
			}
			v.leave()
			if g.all != (household{}) {
				t.Errorf("%+v are kept", g.all)
			}
		})
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Memory is reserved before a body is read into it, and one address has half of it.
func TestGateMemory(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	g := newServer(t, Config{MaxBytes: most}).gate
	now := time.Now()
	hold := func(from, size, code int) *visit {
		t.Helper()
		v, err := g.enter(network(from), now)
		wantCode(t, "enter", err, 0)
		_, err = v.read(strings.NewReader(strings.Repeat("a", size)), int64(size))
		wantCode(t, fmt.Sprintf("a body of address %d", from), err, code)
		return v
	}
	var in []*visit
	for range bodies / 2 {
		in = append(in, hold(1, most, 0), hold(2, most, 0))
	}
	// What is small needs no room among them.
	in = append(in, hold(1, most, http.StatusServiceUnavailable), hold(3, most, http.StatusServiceUnavailable),
		hold(1, smallBody-1, 0), hold(3, smallBody-1, 0))
	for _, v := range in {
		v.leave()
	}
	hold(1, most, 0).leave()
}

// No more is read by the parser at once than one body may have, beside what is small, and who waits
// too long hears of it.
func TestGateTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 1 << 20
		g := newServer(t, Config{MaxBytes: most, Timeout: time.Second}).gate
		first, err := g.turn(t.Context(), most)
		wantCode(t, "the first", err, 0)
		_, err = g.turn(t.Context(), smallBody+1)
		wantCode(t, "a second one", err, http.StatusServiceUnavailable)
		small, err := g.turn(t.Context(), smallBody)
		wantCode(t, "a small one", err, 0)
		small()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = g.turn(gone, most)
		wantCode(t, "one whose client has gone", err, http.StatusServiceUnavailable)
		time.AfterFunc(time.Second/2, first)
		third, err := g.turn(t.Context(), 5*most)
		wantCode(t, "one that waited", err, 0)
		third()
	})
}
