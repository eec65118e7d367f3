package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Floor sends a Recording to everyone, and for a changed file the bytes that the change must cost
// at least. Delta only.
type Floor struct {
	rec         *Recording                         // immutable
	resources   map[string][]*discoveryv3.Resource // immutable; what was recorded, by type URL
	assignments map[string][]*discoveryv3.Resource // immutable; those of endpoints by host
	authority   *Authority                         // immutable; nil: without TLS

	mu  sync.Mutex
	out map[chan []byte]struct{} // guarded by mu; one channel a stream
}

// NewFloor makes a floor of rec that speaks mutual TLS with certificates of the authority, unless
// that is nil.
func NewFloor(rec *Recording, a *Authority) (*Floor, error) {
	f := &Floor{rec: rec, resources: map[string][]*discoveryv3.Resource{},
		assignments: map[string][]*discoveryv3.Resource{}, authority: a, out: map[chan []byte]struct{}{}}
	for typ, raw := range rec.first {
		var r discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("recorded %s: %w", typ, err)
		}
		f.resources[typ] = r.GetResources()
	}
	for _, r := range f.resources[EDS] {
		host := r.GetName()[strings.LastIndexByte(r.GetName(), '|')+1:]
		f.assignments[host] = append(f.assignments[host], r)
	}
	return f, nil
}

// Run serves on l and watches dir, which holds the files of the recorded mesh, until ctx ends.
func (f *Floor) Run(ctx context.Context, l net.Listener, dir string) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	if err := w.Add(dir); err != nil {
		return errors.Join(fmt.Errorf("watch %s: %w", dir, err), w.Close())
	}
	options := []grpc.ServerOption{grpc.MaxConcurrentStreams(100000), grpc.ForceServerCodecV2(rawCodec{})}
	if f.authority != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(f.authority.Server())))
	}
	srv := grpc.NewServer(options...)
	srv.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "DeltaAggregatedResources", Handler: f.stream, ServerStreams: true,
			ClientStreams: true}}}, f)

	var wg sync.WaitGroup
	failed := make(chan error, 2)
	wg.Go(func() { failed <- srv.Serve(l) })
	wg.Go(func() { failed <- f.watch(w) })
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	srv.Stop()
	err = errors.Join(err, w.Close())
	wg.Wait()
	return err
}

// stream answers the first request of each type with what was recorded, and sends what changes.
func (f *Floor) stream(_ any, st grpc.ServerStream) error {
	push := make(chan []byte, 64)
	f.mu.Lock()
	f.out[push] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.out, push)
	}()
	requests := make(chan string)
	go receive(st, requests)
	sent := map[string]bool{}
	for {
		var b []byte
		select {
		case typ, more := <-requests:
			if !more {
				return nil
			}
			if sent[typ] {
				continue // an acknowledgement
			}
			sent[typ] = true
			b = f.rec.first[typ]
		case b = <-push:
		}
		if err := st.SendMsg(b); err != nil {
			return err
		}
	}
}

// receive hands over the types of requests until the stream ends.
func receive(st grpc.ServerStream, requests chan<- string) {
	defer close(requests)
	for {
		var raw mem.Buffer
		if err := st.RecvMsg(&raw); err != nil {
			return // the client left
		}
		typ := string(bytesField(raw.ReadOnlyData(), 2)) // type_url of a DeltaDiscoveryRequest
		raw.Free()
		select {
		case requests <- typ:
		case <-st.Context().Done():
			return
		}
	}
}

func (f *Floor) broadcast(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.out {
		select {
		case c <- b:
		default: // a proxy that is 64 changes behind loses one: the run counts it as missing
		}
	}
}

// watch broadcasts what each changed file must cost at least, until w is closed.
func (f *Floor) watch(w *fsnotify.Watcher) error {
	for ev := range w.Events {
		if !ev.Has(fsnotify.Create) || !strings.HasSuffix(ev.Name, ".yaml") {
			continue
		}
		body, err := os.ReadFile(ev.Name)
		if err != nil {
			return fmt.Errorf("changed file: %w", err)
		}
		response, err := f.changed(filepath.Base(ev.Name), string(body))
		if err != nil {
			return err
		}
		if response != nil {
			f.broadcast(response)
		}
	}
	return nil
}

// changed is what a changed file must cost; nil if that is nothing.
func (f *Floor) changed(name, body string) ([]byte, error) {
	marker := regexp.MustCompile(`marker-[a-z]+-\w+|172\.\d+\.\d+\.\d+`).FindString(body)
	var i int
	switch _, err := fmt.Sscanf(name, "svc%d.yaml", &i); {
	case strings.HasPrefix(name, "policy"):
		return change(ecdsType, marker, f.resources[ecdsType], firstPolicy)
	case strings.HasPrefix(name, "route"):
		return change(rdsType, marker, f.resources[rdsType], "")
	case err != nil || marker == "":
		return nil, nil
	}
	host := f.rec.shape.Host(i) // the marker is the address of an endpoint of version v1
	return change(EDS, marker, f.assignments[host], "||"+host, "|v1|"+host)
}
