package hostile

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

const largeRequestsMesh = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec: {template: {serviceAccount: web}}
`

// Many large requests for certificates, complete and incomplete ones, use little memory, and other
// workloads can still join.
func TestLargeCertificateRequests(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": largeRequestsMesh}, harness.Secure(""))
	attacker := m.Enrol(harness.Workload{Name: "attacker", Group: "shop/web"})
	before := resetPeak(t, m.Ashored.PID())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	const connections, each = 10, 12
	var calls sync.WaitGroup
	var mu sync.Mutex
	got := map[codes.Code][]string{}
	for range connections {
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
			Certificates: []tls.Certificate{attacker.Certificate}, RootCAs: attacker.Roots, MinVersion: tls.VersionTLS12,
		}}
		defer transport.CloseIdleConnections()
		for i := range each {
			calls.Go(func() {
				body := unfinished(ctx, 4<<20)
				if i%2 == 0 {
					body = message(manyFields(4<<20 - 1024))
				}
				code, text := requestCertificate(ctx, transport, m.TLS(), body)
				mu.Lock()
				defer mu.Unlock()
				got[code] = append(got[code], text)
			})
		}
	}
	m.Enrol(harness.Workload{Name: "other", Group: "shop/web"})
	calls.Wait()

	for code, texts := range got {
		t.Logf("%d calls: %s: %s", len(texts), code, texts[0])
	}
	if len(got[codes.OK]) > 0 {
		t.Errorf("%d calls were answered, want 0", len(got[codes.OK]))
	}
	peak := memory(t, m.Ashored.PID(), "VmHWM")
	t.Logf("resident memory rose from %d to %d MiB", before>>20, peak>>20)
	if rise := peak - before; rise > 64<<20 {
		t.Errorf("resident memory rose by %d MiB, want at most 64", rise>>20)
	}
	m.Enrol(harness.Workload{Name: "attacker", Group: "shop/web"})
}

// requestCertificate calls the certificate authority with a body, and returns what it answers.
func requestCertificate(ctx context.Context, via http.RoundTripper, address string, body io.Reader) (codes.Code,
	string) {
	url := "https://" + address + "/istio.v1.auth.IstioCertificateService/CreateCertificate"
	// net/http sometimes misses an answer that comes before the request was sent in full.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, io.NopCloser(body))
	if err != nil {
		return codes.Unknown, err.Error()
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	a, err := via.RoundTrip(r)
	if err != nil {
		return codes.Unknown, err.Error()
	}
	defer a.Body.Close() //nolint:errcheck // nothing is read
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(a.Header.Get("Grpc-Status"))); err != nil {
		return codes.Unknown, err.Error()
	}
	return code, a.Header.Get("Grpc-Message")
}

// message is a gRPC message with its prefix.
func message(content []byte) io.Reader {
	return io.MultiReader(strings.NewReader(prefix(len(content))), strings.NewReader(string(content)))
}

// unfinished is a message of that size whose last byte never comes.
func unfinished(ctx context.Context, size int64) io.Reader {
	return io.MultiReader(strings.NewReader(prefix(int(size))), io.LimitReader(zeros{}, size-1), endless{ctx})
}

func prefix(size int) string {
	return "\x00" + string(binary.BigEndian.AppendUint32(nil, uint32(size)))
}

// manyFields is a request whose metadata has as many fields as fit: decoded, it takes many times
// its size.
func manyFields(size int) []byte {
	var fields []byte
	for i := 0; len(fields) < size-64; i++ {
		entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), fmt.Sprint(i))
		fields = protowire.AppendBytes(protowire.AppendTag(fields, 1, protowire.BytesType), entry)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), fields)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// endless blocks until its context ends.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) { <-e.ctx.Done(); return 0, e.ctx.Err() }

// resetPeak sets the peak of a process's resident memory to what it has now, in bytes, and returns
// it.
func resetPeak(t *testing.T, pid int) int {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o600); err != nil {
		t.Fatal(err)
	}
	return memory(t, pid, "VmHWM")
}

// memory is a field of a process's status, in bytes.
func memory(t *testing.T, pid int, field string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), field+":")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatalf("%s: %v", field, err)
	}
	return kib << 10
}
