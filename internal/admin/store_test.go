package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/semaphore"
)

// testBody is a limit above that of viewers.
const testBody = 10 << 20

// storeRoutes are those of a store, with a turn for writes and one for previews.
func storeRoutes(f func(context.Context, StoreWrite) (Written, error)) []Route {
	write, preview := Handle(CallWrite, Operator, f), Handle(CallPreview, Viewer, f)
	write.MaxBody, preview.MaxBody = testBody, testBody
	write.Turn, preview.Turn = semaphore.NewWeighted(1), semaphore.NewWeighted(1)
	return []Route{write, preview}
}

// A viewer has writes previewed and writes nothing; the files of a refused write are not sent.
func TestStoreRoles(t *testing.T) {
	t.Parallel()
	calls := 0
	c := serve(t, Config{Role: as(Viewer), Routes: storeRoutes(func(context.Context, StoreWrite) (Written, error) {
		calls++
		return Written{}, nil
	})})
	large := []Piece{{File: "a.yaml", Data: make([]byte, testBody)}}
	if _, err := Send(t.Context(), c, CallWrite, StoreWrite{Pieces: large}); !errors.Is(err, ErrForbidden) || calls != 0 ||
		!strings.Contains(err.Error(), "operator") {
		t.Errorf("apply: got %v and %d calls, want ErrForbidden that names the role", err, calls)
	}
	if _, err := Send(t.Context(), c, CallPreview, StoreWrite{Pieces: []Piece{{File: "a.yaml"}}}); err != nil || calls != 1 {
		t.Errorf("a preview: %v, %d calls", err, calls)
	}
}

// A body that is cut off, or is no request, reaches no handler.
func TestStoreCutOff(t *testing.T) {
	t.Parallel()
	c := serve(t, Config{Routes: storeRoutes(func(context.Context, StoreWrite) (Written, error) {
		t.Error("the store was written")
		return Written{}, nil
	})})
	for _, body := range []string{`{"pieces":[{"file":"a.yaml","da`, `{"fiel":1}`, `[1]`} {
		if text := postRaw(t, c.socket, body); !strings.HasPrefix(text, "400 ") {
			t.Errorf("%s: got %s", body, text)
		}
	}
}

// postRaw sends a body as it is.
func postRaw(t *testing.T, socket, body string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
	resp, err := client.Post("http://x/v1/store/write", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status + " " + string(b)
}

// Files are limited by the route, and those of a viewer further.
func TestStoreSizes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		role Role
		size int
		want string // of the error; empty: none
	}{
		"viewer":                      {Viewer, maxViewed, ""},
		"viewer, a large file":        {Viewer, 2 * maxViewed, "more than 8 MiB"},
		"operator, a large file":      {Operator, testBody, ""},
		"operator, a very large file": {Operator, 2 * testBody, "more than 10 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, Config{Role: as(tc.role), Routes: storeRoutes(func(_ context.Context, w StoreWrite) (Written, error) {
				if len(w.Pieces) != 1 || len(w.Pieces[0].Data) != tc.size {
					t.Errorf("%d pieces arrived", len(w.Pieces))
				}
				return Written{}, nil
			})})
			_, err := Send(t.Context(), c, CallPreview, StoreWrite{Pieces: []Piece{{File: "a.yaml", Data: make([]byte, tc.size)}}})
			if tc.want == "" && err != nil || tc.want != "" &&
				(!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// Requests of one turn run one at a time; the others wait. Those of another turn go on.
func TestTurns(t *testing.T) {
	t.Parallel()
	enter, leave := make(chan bool), make(chan struct{})
	c := serve(t, Config{Routes: storeRoutes(func(_ context.Context, w StoreWrite) (Written, error) {
		preview := w.At != "" // marks a preview here
		enter <- preview
		if !preview {
			<-leave
		}
		return Written{}, nil
	})})
	const writers = 3
	errs := make(chan error, writers)
	for range writers {
		go func() { _, err := Send(t.Context(), c, CallWrite, StoreWrite{}); errs <- err }()
	}
	for i := range writers {
		<-enter
		go func() { _, err := Send(t.Context(), c, CallPreview, StoreWrite{At: "1"}); errs <- err }()
		if !<-enter {
			t.Fatalf("a second write began during write %d", i)
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
		leave <- struct{}{}
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
