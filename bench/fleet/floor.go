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

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Floor sends a Recording to everyone, and for a changed file the bytes that the change must cost
// at least. Delta only.
type Floor struct {
	rec         *Recording          // set once
	assignments map[string][][]byte // set once; by host
	authority   *Authority          // set once; nil: without TLS

	mu  sync.Mutex
	out map[chan []byte]struct{} // guarded by mu; one channel a stream
}

// NewFloor makes a floor of rec that speaks mutual TLS with certificates of the authority, unless
// that is nil.
func NewFloor(rec *Recording, a *Authority) *Floor {
	f := &Floor{rec: rec, assignments: map[string][][]byte{}, authority: a, out: map[chan []byte]struct{}{}}
	for _, d := range rec.resources(EDS) {
		name := string(bytesField(d, 3))
		host := name[strings.LastIndexByte(name, '|')+1:]
		f.assignments[host] = append(f.assignments[host], d)
	}
	return f
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
	requests := make(chan []byte)
	go receive(st, requests)
	sent := map[string]bool{}
	for {
		var b []byte
		select {
		case raw, more := <-requests:
			if !more {
				return nil
			}
			typ := string(bytesField(raw, 2)) // type_url of a DeltaDiscoveryRequest
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

// receive hands over requests until the stream ends.
func receive(st grpc.ServerStream, requests chan<- []byte) {
	defer close(requests)
	for {
		var raw []byte
		if err := st.RecvMsg(&raw); err != nil {
			return // the client left
		}
		select {
		case requests <- raw:
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
		if response := f.changed(filepath.Base(ev.Name), string(body)); response != nil {
			f.broadcast(response)
		}
	}
	return nil
}

// changed is what a changed file must cost; nil if that is nothing.
func (f *Floor) changed(name, body string) []byte {
	marker := regexp.MustCompile(`marker-[a-z]+-\w+|172\.\d+\.\d+\.\d+`).FindString(body)
	var i int
	switch _, err := fmt.Sscanf(name, "svc%d.yaml", &i); {
	case strings.HasPrefix(name, "policy"):
		return change(ecdsType, marker, f.rec.resources(ecdsType), firstPolicy)
	case strings.HasPrefix(name, "route"):
		return change(rdsType, marker, f.rec.resources(rdsType), "")
	case err != nil || marker == "":
		return nil
	}
	host := f.rec.shape.Host(i) // the marker is the address of an endpoint of version v1
	return change(EDS, marker, f.assignments[host], "||"+host, "|v1|"+host)
}
