package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/agent/relay"
	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// secretType is that of what Envoy gets by SDS.
const secretType = resource.SecretType

// The secrets that Envoy asks for, in Istio's names.
const (
	secretCertificate = "default" // the workload's key and certificates
	secretRoots       = "ROOTCA"  // what it believes others by
)

// secrets gives Envoy its key, its certificates and the mesh's roots, and each new one when it comes: Envoy's secret
// discovery service, in both forms of the protocol.
type secrets struct {
	keeper *Keeper
	kind   *ads.Kind
	cache  *ads.Cache
	log    hclog.Logger

	serial atomic.Uint64 // of streams, for their nonces
	open   atomic.Int64  // streams now

	mu      sync.Mutex
	refused map[uint64]string // guarded by mu: by the serial of an open stream, Envoy's words about what it does not take
}

// Refusal is why Envoy does not take a secret, in its words; empty: it takes them all.
func (s *secrets) Refusal() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, serial := range slices.Sorted(maps.Keys(s.refused)) {
		return s.refused[serial]
	}
	return ""
}

// note keeps what Envoy refuses on a stream; nothing: it takes what it got there. Another stream's acknowledgement says
// nothing about that.
func (s *secrets) note(serial uint64, refused []ads.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refused, serial)
	for _, r := range refused {
		s.refused[serial] = cmp.Or(r.Words, "Envoy gave no reason")
	}
}

func newSecrets(k *Keeper, log hclog.Logger) *secrets {
	return &secrets{keeper: k, kind: &ads.Kind{TypeURL: secretType, Single: true}, cache: ads.NewCache(), log: log.Named("sds"), refused: map[uint64]string{}}
}

// Register puts the service on a server.
func (s *secrets) Register(g *grpc.Server) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.secret.v3.SecretDiscoveryService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "DeltaSecrets", Handler: func(_ any, g grpc.ServerStream) error { return s.serve(g, false) }, ServerStreams: true, ClientStreams: true},
			{StreamName: "StreamSecrets", Handler: func(_ any, g grpc.ServerStream) error { return s.serve(g, true) }, ServerStreams: true, ClientStreams: true},
		},
		Metadata: "envoy/service/secret/v3/sds.proto",
	}, s)
}

// secretSet is what an identity is to Envoy.
func secretSet(id *Identity) (resource.Set, error) {
	key, err := ca.EncodeKey(id.Key)
	if err != nil {
		return resource.Set{}, fmt.Errorf("encode the key: %w", err)
	}
	item := func(m *tlsv3.Secret) *resource.Resource {
		return resource.New(secretType, m.GetName(), nil, func() []byte { return resource.Encode(m) })
	}
	return resource.Set{Shared: resource.NewLayer([]*resource.Resource{
		item(&tlsv3.Secret{Name: secretCertificate, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(ca.EncodeCertificates(id.Chain...)), PrivateKey: inline(key)}}}),
		item(&tlsv3.Secret{Name: secretRoots, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: inline(ca.EncodeCertificates(id.Roots...))}}}),
	})}, nil
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

// serve serves one stream until it ends.
func (s *secrets) serve(g grpc.ServerStream, states bool) error {
	s.open.Add(1)
	defer s.open.Add(-1)
	changed, forget := s.keeper.Changed()
	defer forget()
	serial := s.serial.Add(1)
	defer s.note(serial, nil)
	st := &secretStream{secrets: s, grpc: g, serial: serial, requests: make(chan *relay.Frame), reader: ads.NewReader(states, ads.Limits{}),
		sub: ads.NewSubscription(s.kind, states, s.cache, fmt.Sprintf("sds-%d-", serial))}
	go st.read()
	return st.run(changed)
}

// secretStream is one stream of Envoy's. One goroutine, run, owns it and sends; another one reads.
type secretStream struct {
	*secrets
	grpc   grpc.ServerStream // set once
	serial uint64            // set once

	requests chan *relay.Frame // written and closed by read, read by run
	readErr  error             // written by read before it closes requests

	// The following fields are used by run alone.
	reader *ads.Reader
	sub    *ads.Subscription
	id     *Identity // that set was made from
	set    resource.Set
}

// read hands over requests until the stream ends. It ends after run, which ends the stream.
func (st *secretStream) read() {
	defer close(st.requests)
	for {
		f := &relay.Frame{}
		if st.readErr = st.grpc.RecvMsg(f); st.readErr != nil {
			return
		}
		select {
		case st.requests <- f:
		case <-st.grpc.Context().Done():
			return
		}
	}
}

// run owns the stream: a request, or another identity.
func (st *secretStream) run(changed <-chan struct{}) error {
	ctx := st.grpc.Context()
	if err := st.refresh(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-changed:
			if err := st.refresh(); err != nil {
				return err
			}
		case f, ok := <-st.requests:
			if !ok {
				if errors.Is(st.readErr, io.EOF) {
					return nil
				}
				return st.readErr
			}
			if err := st.take(f); err != nil {
				return err
			}
		}
		if err := st.send(); err != nil {
			return err
		}
	}
}

// refresh takes the latest identity.
func (st *secretStream) refresh() error {
	id := st.keeper.Identity()
	if id == st.id {
		st.sub.Force([]string{secretCertificate, secretRoots}) // somebody wants it sent again
		return nil
	}
	set, err := secretSet(id)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	st.id, st.set = id, set
	return nil
}

// take takes in one request.
func (st *secretStream) take(f *relay.Frame) error {
	r, err := st.reader.Read(f.Data)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if r.TypeURL != "" && r.TypeURL != secretType {
		return status.Errorf(codes.InvalidArgument, "type %.200q is not served here, %s is", r.TypeURL, secretType)
	}
	out, err := st.sub.Receive(r, st.set, ads.Limits{}, time.Now())
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	if out.Rejected {
		st.log.Error("envoy refuses its certificate or the roots", "error", r.Rejected.Message)
	}
	if out.Rejected || out.Acknowledged || out.Started {
		st.note(st.serial, st.sub.Refusals())
	}
	return nil
}

// send sends what Envoy lacks.
func (st *secretStream) send() error {
	for r := st.sub.Next(st.set, ads.Waits{}, time.Now()); r != nil; r = st.sub.Next(st.set, ads.Waits{}, time.Now()) {
		if err := st.grpc.SendMsg(&relay.Frame{Data: slices.Concat(r.Parts...)}); err != nil {
			return err
		}
		for c := range r.Changed() {
			st.log.Debug("sent to envoy", "secret", c.Name, "certificate", st.id.Serial())
		}
	}
	return nil
}
