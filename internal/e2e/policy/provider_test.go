package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// oracles are providers that give one answer to everything, each after a while. One server is all
// of them: it distinguishes them by the prefix of paths.
type oracles struct {
	*httptest.Server
	answer int // set once: a status

	mu    sync.Mutex
	asked map[string]int // guarded by mu: by name
}

func newOracles(t *testing.T, answer int) *oracles {
	o := &oracles{answer: answer, asked: map[string]int{}}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

func (o *oracles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	o.mu.Lock()
	o.asked[name]++
	o.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // who is asked takes his time
	w.WriteHeader(o.answer)
}

func (o *oracles) count(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[name]
}

// table is a policy that asks the oracle of a name, and the service that it is; none for no name.
// Nothing of it was there before.
func (o *oracles) table(name string) *txtar.Archive {
	if name == "" {
		return archive("", "")
	}
	host, port, _ := net.SplitHostPort(o.Listener.Addr().String())
	policies := policyHead + fmt.Sprintf(`{action: CUSTOM, provider: {name: %[1]s}, rules: [{}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: ops}
spec:
  hosts: [%[1]s.example]
  ports: [{number: 80, name: http}]
  resolution: STATIC
  endpoints: [{address: %[2]s, ports: {http: %[3]s}}]
`, name, host, port)
	mesh := fmt.Sprintf("extensionProviders: [{name: %[1]s, envoyExtAuthzHttp: {service: %[1]s.example, port: 80, pathPrefix: /%[1]s}}]", name)
	return &txtar.Archive{Files: []txtar.File{{Name: "policies.yaml", Data: []byte(policies)},
		{Name: "mesh.yaml", Data: []byte(mesh)}}}
}

// providers are the clusters of oracles among those of a set.
func providers(set resource.Set) (out []*resource.Resource) {
	for r := range set.All() {
		if strings.Contains(r.Name, "|oracle-") {
			out = append(out, r)
		}
	}
	return out
}

// maxPending limits the requests of a stream that wait for responses: on a busy machine more of them
// would queue until they time out.
const maxPending = 16

// stream sends a request every 2 ms, as long as fewer than maxPending wait for responses.
type stream struct {
	client   *http.Client
	url      string
	wants    []int
	requests sync.WaitGroup

	mu     sync.Mutex
	total  int            // guarded by mu
	others map[string]int // guarded by mu: by what came that is not wanted
	first  []string       // guarded by mu: the first of each
}

// stream starts one of requests that are to get one of some statuses. It ends with the function
// that it returns, and the test fails when others came.
func (s *stage) stream(wants ...int) (end func()) {
	transport := &http.Transport{MaxIdleConnsPerHost: 200,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.dial(ctx, s.t, s.tb.http, "-", "")
		}}
	st := &stream{client: &http.Client{Transport: transport, Timeout: 20 * time.Second}, url: "http://web.example/",
		wants: wants, others: map[string]int{}}
	ctx, cancel := context.WithCancel(s.t.Context())
	var pacing sync.WaitGroup
	pacing.Go(func() {
		pending := make(chan struct{}, maxPending)
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				pending <- struct{}{}
				st.requests.Go(func() {
					st.once()
					<-pending
				})
			}
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		pacing.Wait()
		st.requests.Wait()
		transport.CloseIdleConnections()
		st.report(s.t)
	})
}

func (st *stream) once() {
	r, err := st.client.Get(st.url)
	what, wanted := "", false
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
		err = errors.Join(err, r.Body.Close())
		what, wanted = r.Status, slices.Contains(st.wants, r.StatusCode)
	}
	if err != nil {
		what, wanted = err.Error(), false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.total++
	if wanted {
		return
	}
	if st.others[what]++; st.others[what] == 1 {
		st.first = append(st.first, time.Now().UTC().Format("15:04:05.000 ")+what)
	}
}

// report fails the test for unwanted results.
func (st *stream) report(t *testing.T) {
	t.Helper()
	for what, n := range st.others {
		t.Errorf("%d of %d requests got %s", n, st.total, what)
	}
	if len(st.first) > 0 {
		t.Logf("the first of each kind:\n%s", strings.Join(st.first, "\n"))
	}
	t.Logf("%d requests", st.total)
}

// opened waits until the listeners are there.
func (s *stage) opened() {
	s.t.Helper()
	s.eventually("start", func() string {
		if s.stat("listener_manager.total_listeners_active") != 2 {
			return "the listeners are not there"
		}
		return ""
	})
}

// comes waits until an oracle is asked again and again.
func (s *stage) comes(o *oracles, name string) {
	s.t.Helper()
	s.eventually(name+" comes", func() string {
		if n := o.count(name); n < 20 {
			return fmt.Sprintf("it was asked %d times", n)
		}
		return ""
	})
}

// Requests that a provider allows are served all the time: while a policy with a new provider is
// created, while the provider is replaced, and while policy and provider are deleted together.
func TestProvidersComeAndGo(t *testing.T) {
	t.Parallel()
	s, o := newStage(t, ""), newOracles(t, http.StatusOK)
	s.publish("", "")
	s.opened()
	end := s.stream(http.StatusOK)
	defer end()
	for i := range 12 {
		name := fmt.Sprint("oracle-", i)
		s.show(o.table(name))
		s.comes(o, name)
		if i%2 == 1 {
			s.show(o.table(""))
		}
	}
	s.eventually("all go", func() string {
		if n := s.stat("cluster_manager.cluster_removed"); n != 12 {
			return fmt.Sprintf("%d clusters were removed, want 12", n)
		}
		return ""
	})
	time.Sleep(100 * time.Millisecond) // what a removal does wrong is seen by requests after it
}

// No request passes when a DENY policy is replaced by a new provider that refuses.
func TestProviderTakesOver(t *testing.T) {
	t.Parallel()
	s, o := newStage(t, ""), newOracles(t, http.StatusUnauthorized)
	deny := func() { s.publish(policyHead+`{action: DENY, rules: [{}]}`, "") }
	deny()
	s.opened()
	end := s.stream(http.StatusUnauthorized, http.StatusForbidden)
	defer end()
	for i := range 8 {
		name := fmt.Sprint("oracle-", i)
		s.show(o.table(name))
		s.comes(o, name)
		deny()
		time.Sleep(20 * time.Millisecond) // that the next one may find it in force, or on its way
	}
}
