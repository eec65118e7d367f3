package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/ashore-mesh/ashore/bench/fleet"
	"github.com/ashore-mesh/ashore/internal/task"
)

// Server serves the objects of a mesh. Safe for concurrent use.
type Server struct {
	streams bool             // immutable
	http    *httptest.Server // immutable

	changed task.Broadcaster

	mu     sync.Mutex
	mesh   *mesh   // guarded by mu
	events []event // guarded by mu: all changes so far
}

// event is a change in the encoding of a watch.
type event struct {
	path  string
	frame []byte
}

// Start starts a server of the mesh. streams says whether it streams lists, as API servers do since
// Kubernetes 1.34.
func Start(shape fleet.Shape, streams bool) *Server {
	s := &Server{mesh: newMesh(shape), streams: streams}
	s.http = httptest.NewUnstartedServer(s)
	s.http.EnableHTTP2 = true
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that leave
	s.http.StartTLS()
	return s
}

// Close ends the server and its connections.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Kubeconfig is a file with which clients reach the server.
func (s *Server) Kubeconfig() []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: bench,
clusters: [{name: bench, cluster: {server: %q, insecure-skip-tls-verify: true}}],
users: [{name: bench, user: {token: bench}}],
contexts: [{name: bench, context: {cluster: bench, user: bench}}]}
`, s.http.URL)
}

// ServeHTTP lists and watches. Whatever else is asked for is not found.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k, found := s.mesh.kinds[r.URL.Path]
	q := r.URL.Query()
	number := func(name string) int {
		n, _ := strconv.Atoi(q.Get(name)) // a missing number is zero
		return n
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	initial := q.Get("sendInitialEvents") == "true"
	switch {
	case !found || r.Method != http.MethodGet:
		http.NotFound(w, r)
	case q.Get("watch") == "":
		_, _ = io.WriteString(w, s.list(k, number("continue"), number("limit"))) // the client may have left
	case initial && !s.streams:
		http.Error(w, "sendInitialEvents is forbidden", http.StatusUnprocessableEntity)
	case initial:
		s.watch(r.Context(), w, r.URL.Path, s.stream(w, k))
	default:
		s.watch(r.Context(), w, r.URL.Path, number("resourceVersion"))
	}
}

// version is the resource version: 1, and one more with each change. The caller holds mu.
func (s *Server) version() int { return 1 + len(s.events) }

// list returns a page in protobuf: so many objects, or all if limit is zero.
func (s *Server) list(k kind, from, limit int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := k.list.DeepCopyObject()
	page, err := meta.ListAccessor(list)
	must(err)
	page.SetResourceVersion(strconv.Itoa(s.version()))
	to := k.count
	if limit > 0 && from+limit < to {
		to = from + limit
		page.SetContinue(strconv.Itoa(to))
	}
	var objects []runtime.Object
	for i := from; i < to; i++ {
		objects = append(objects, k.object(i))
	}
	must(meta.SetList(list, objects))
	return runtime.EncodeOrDie(encoder, list)
}

// stream sends all objects as events, and returns the resource version at which a watch continues.
func (s *Server) stream(w io.Writer, k kind) int {
	s.mu.Lock()
	version := s.version()
	s.mu.Unlock()
	for i := range k.count {
		s.mu.Lock()
		o := k.object(i)
		s.mu.Unlock()
		_, _ = w.Write(frame(watch.Added, o)) // watch ends when the client leaves
	}
	end := k.object(0) // only the metadata of a bookmark counts
	end.SetResourceVersion(strconv.Itoa(version))
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	_, _ = w.Write(frame(watch.Bookmark, end))
	return version
}

// watch sends the changes of a kind since a resource version, until ctx ends.
func (s *Server) watch(ctx context.Context, w http.ResponseWriter, path string, version int) {
	for wake := s.changed.Watch(ctx); ctx.Err() == nil; {
		s.mu.Lock()
		events := s.events[version-1:]
		s.mu.Unlock()
		for _, e := range events {
			if e.path == path {
				_, _ = w.Write(e.frame) // ctx ends when the client leaves
			}
		}
		version += len(events)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-ctx.Done():
		case <-wake:
		}
	}
}

// Report sends the status of a node that has not changed, as its kubelet does every five minutes.
func (s *Server) Report(node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(nodes, watch.Modified, s.mesh.node(node))
}

// Set replaces an endpoint of a service by a new Pod with the address ip. Without an address, the
// endpoint becomes not ready.
func (s *Server) Set(service, number int, ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := service*s.mesh.shape.Endpoints + number
	old, e := s.mesh.pod(i), &s.mesh.endpoints[i]
	if ip == "" {
		e.ready = false
		s.emit(pods, watch.Modified, s.mesh.pod(i))
	} else {
		*e = endpoint{ip, true}
		s.emit(pods, watch.Added, s.mesh.pod(i))
	}
	s.emit(endpointSlices, watch.Modified, s.mesh.slice(service))
	if ip != "" {
		s.emit(pods, watch.Deleted, old)
	}
}

// emit sends a change to all who watch. The caller holds mu.
func (s *Server) emit(path string, what watch.EventType, o object) {
	o.SetResourceVersion(strconv.Itoa(s.version() + 1))
	s.events = append(s.events, event{path, frame(what, o)})
	s.changed.Notify()
}

// encoder encodes objects and their kind in protobuf.
var encoder = runtime.WithVersionEncoder{Encoder: protobuf.NewSerializer(nil, nil), ObjectTyper: scheme.Scheme}

// frame encodes an event of a watch.
func frame(what watch.EventType, o object) []byte {
	var b bytes.Buffer
	to := streaming.NewEncoder(protobuf.LengthDelimitedFramer.NewFrameWriter(&b), protobuf.NewRawSerializer(nil, nil))
	must(restwatch.NewEncoder(to, encoder).Encode(&watch.Event{Type: what, Object: o}))
	return b.Bytes()
}

// must panics if what this package made cannot be encoded.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
