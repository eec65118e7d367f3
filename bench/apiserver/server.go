package apiserver

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ashore-mesh/ashore/bench/fleet"
)

const (
	// first is the resource version of all objects before any change. Each change has the next one.
	first = 1
	// bookmarks is how often a watch sends a bookmark.
	bookmarks = time.Minute
)

// Server serves the objects of a mesh. Safe for concurrent use.
type Server struct {
	*mesh                    // immutable
	streams bool             // immutable
	http    *httptest.Server // immutable

	mu      sync.Mutex
	pods    map[[2]int]pod // guarded by mu: those that changed, by service and endpoint
	events  []event        // guarded by mu: all changes so far
	changed chan struct{}  // guarded by mu: closed with the next change
}

// event is a change in the encoding of a watch.
type event struct {
	path  string
	frame []byte
}

// Start starts a server of the mesh. streams says whether it streams lists, as API servers do since
// Kubernetes 1.34.
func Start(shape fleet.Shape, streams bool) *Server {
	s := &Server{mesh: newMesh(shape), streams: streams, pods: map[[2]int]pod{}, changed: make(chan struct{})}
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
	k, found := s.kinds[r.URL.Path]
	q := r.URL.Query()
	number := func(name string) int {
		n, _ := strconv.Atoi(q.Get(name)) // no number is zero: none
		return n
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	initial := q.Get("sendInitialEvents") == "true"
	switch {
	case !found || r.Method != http.MethodGet:
		http.NotFound(w, r)
	case q.Get("watch") == "" && q.Get("resourceVersion") == "0":
		k.list(w, 0, 0) // the cache of an API server ignores limits
	case q.Get("watch") == "":
		k.list(w, number("continue"), number("limit"))
	case initial && !s.streams:
		http.Error(w, "sendInitialEvents is forbidden", http.StatusUnprocessableEntity)
	default:
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(number("timeoutSeconds"))*time.Second)
		defer cancel()
		from := number("resourceVersion")
		if initial {
			k.stream(w)
			from = first
		}
		s.watch(ctx, w, r.URL.Path, from-first)
	}
}

// list sends so many objects, or all when limit is zero.
func (k kind) list(w io.Writer, from, limit int) {
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(first)}
	to := k.count
	if limit > 0 && from+limit < to {
		to = from + limit
		meta.Continue = strconv.Itoa(to)
	}
	list := appendField(nil, 1, marshal(&meta)) // lists of all kinds have these fields
	for i := from; i < to; i++ {
		list = appendField(list, 2, marshal(k.object(i)))
	}
	write(w, encode(k.version, k.name+"List", list))
}

// stream sends all objects as events.
func (k kind) stream(w io.Writer) {
	for i := range k.count {
		write(w, k.frame("ADDED", k.object(i)))
	}
	end := k.object(0) // what counts of a bookmark is its metadata
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	write(w, k.frame("BOOKMARK", end))
}

// watch sends the events of a kind from one of them on, until ctx ends.
func (s *Server) watch(ctx context.Context, w http.ResponseWriter, path string, from int) {
	tick := time.NewTicker(bookmarks)
	defer tick.Stop()
	for http.NewResponseController(w).Flush() == nil { // else the client left
		s.mu.Lock()
		events, changed := s.events, s.changed
		s.mu.Unlock()
		if from < len(events) {
			if events[from].path == path {
				write(w, events[from].frame)
			}
			from++
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
			mark := s.kinds[path].object(0)
			mark.SetResourceVersion(strconv.Itoa(from + first))
			write(w, s.kinds[path].frame("BOOKMARK", mark))
		}
	}
}

// Report sends the status of a node that has not changed, as its kubelet does every five minutes.
func (s *Server) Report(node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(nodes, "MODIFIED", s.node(node))
}

// Set replaces an endpoint of a service by a new Pod with the address ip. Without an address, the
// endpoint becomes not ready.
func (s *Server) Set(service, endpoint int, ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []pod
	for e := range s.shape.Endpoints {
		p, changed := s.pods[[2]int{service, e}]
		if !changed {
			p = s.podAt(service, e)
		}
		all = append(all, p)
	}
	p := &all[endpoint]
	old := *p
	if ip == "" {
		p.ready = false
		s.emit(pods, "MODIFIED", s.pod(*p))
	} else {
		p.ip, p.ready = ip, true
		s.emit(pods, "ADDED", s.pod(*p))
	}
	s.emit(endpointSlices, "MODIFIED", s.slice(service, all))
	if ip != "" {
		s.emit(pods, "DELETED", s.pod(old))
	}
	s.pods[[2]int{service, endpoint}] = *p
}

// emit sends a change to all who watch. The caller holds mu.
func (s *Server) emit(path, what string, o object) {
	o.SetResourceVersion(strconv.Itoa(first + len(s.events) + 1))
	s.events = append(s.events, event{path, s.kinds[path].frame(what, o)})
	close(s.changed)
	s.changed = make(chan struct{})
}

// frame encodes an event of a watch.
func (k kind) frame(what string, o object) []byte {
	raw := encode(k.version, k.name, marshal(o))
	b := marshal(&metav1.WatchEvent{Type: what, Object: runtime.RawExtension{Raw: raw}})
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// encode encodes an object as the API server does.
func encode(version, kind string, object []byte) []byte {
	return append([]byte("k8s\x00"),
		marshal(&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: kind}, Raw: object})...)
}

// marshal encodes what this package made, which always can be encoded.
func marshal(o interface{ Marshal() ([]byte, error) }) []byte {
	b, err := o.Marshal()
	if err != nil {
		panic(err)
	}
	return b
}

func appendField(b []byte, num protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), value)
}

// write writes to a client. One that left is noticed elsewhere.
func write(w io.Writer, b []byte) { _, _ = w.Write(b) }
