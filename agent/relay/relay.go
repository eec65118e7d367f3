package relay

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/hashicorp/go-hclog"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/task"
)

// Config is the configuration of a Relay. Node, Addresses, Dial, SetRoots, SetConfig and Log are
// required.
type Config struct {
	// Node introduces the agent on the control stream. Envoy introduces itself.
	Node *corev3.Node
	// Addresses are host:port of the control plane's replicas.
	Addresses []string
	// Dial opens a connection to one of them and verifies the server. It uses the current
	// certificate. Its errors are shown to the operator.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Plaintext says that Dial does not verify the server. A connection is then used at once,
	// because a control plane without an authority may send nothing on the control stream.
	Plaintext bool
	// Renewed signals that Dial would use another certificate. The relay connects again.
	Renewed <-chan struct{}
	// Refused is called when a verified control plane does not accept the certificate. It must not
	// block. Nil: not called.
	Refused func()

	// SetRoots receives the roots of the mesh in PEM, again with each connection. An error is a
	// rejection.
	SetRoots func(pem []string) error
	// SetConfig receives the ProxyConfig of the workload, also that of the cache. It must not block.
	SetConfig func(*meshv1alpha1.ProxyConfig)
	// SetProbe receives the probe of the workload's group, even if it is unchanged. The probe is
	// empty if the group has none, and nil if the control plane sends none. SetProbe must not
	// block. An error is a rejection. Nil: the probe is not requested.
	SetProbe func(*networkingv1.ReadinessProbe) error
	// SetNames receives the name table for DNS, an encoded istio.networking.nds.v1.NameTable. It
	// must not block. An error is a rejection. Nil: the table is not requested.
	SetNames func(table []byte) error

	// CacheFile is the path of the cache. Empty: the cache is in memory only.
	CacheFile string
	// Owner identifies the workload. A cache file of another owner is not used.
	Owner string
	// MaxAge is the maximum age of a configuration that no control plane confirmed. An older cache
	// file is not used. Zero means 24h.
	MaxAge time.Duration
	Log    hclog.Logger
}

const (
	defaultMaxAge = 24 * time.Hour
	// saveDelay is the interval at which changes are noticed. saveGap is the minimum time between two
	// writes.
	saveDelay, saveGap = time.Second, time.Minute
	// freeDelay is the time from a write until unused memory is returned to the system.
	freeDelay = 10 * time.Second
)

// Relay relays between Envoy and the control plane. Safe for concurrent use.
type Relay struct {
	cfg   Config       // immutable
	log   hclog.Logger // immutable
	cache *cache       // immutable

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when link or health changes
	link     *link         // in use; nil: none
	health   *request      // the latest report; nil: none yet
	sessions []*session    // oldest first; only the newest writes to the cache
	rejected rejected      // of all sessions

	since       time.Time // since link is as it is
	lastErr     string    // why there is no link
	confirmed   time.Time // when a control plane last confirmed the cache, while there is no link; zero: never
	fileRefused string    // why the file was not used
	fileErr     string    // why the file cannot be written
}

// New makes a relay and reads the cache file. If the file cannot be used, Status says why.
func New(c Config) (*Relay, error) {
	c.MaxAge = cmp.Or(c.MaxAge, defaultMaxAge)
	r := &Relay{cfg: c, log: c.Log.Named("xds"), cache: newCache(), rejected: rejected{}, changed: make(chan struct{}), since: time.Now()}
	if c.CacheFile != "" {
		r.restore()
	}
	return r, nil
}

// restore reads the cache file.
func (r *Relay) restore() {
	c, confirmed, err := load(r.cfg.CacheFile, r.cfg.Owner, time.Now(), r.cfg.MaxAge)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		r.fileRefused = err.Error()
		r.log.Warn("the cached configuration is not used", "path", r.cfg.CacheFile, "reason", err)
		return
	}
	r.cache, r.confirmed = c, confirmed
	r.restoreControl()
	r.log.Info("starting with the cached configuration", "confirmed", confirmed.UTC().Format(time.RFC3339))
}

// Run connects to control planes and writes the cache file, until ctx ends.
func (r *Relay) Run(ctx context.Context) error {
	parts := []task.Part{
		{Name: "connection to the control plane", Run: r.connectLoop},
	}
	if r.cfg.CacheFile != "" {
		parts = append(parts, task.Part{Name: "cache of the configuration", Run: r.saveLoop})
	}
	return task.Run(ctx, parts...)
}

// ReportHealth reports to the control plane why the workload is unhealthy; empty: it is healthy. ports
// are the states of the workload's ports, "8080=closed". The report is repeated on each connection.
func (r *Relay) ReportHealth(reason string, ports []string) {
	a := &request{TypeUrl: healthType, ResourceNamesSubscribe: ports}
	if reason != "" {
		a.ErrorDetail = &rpcstatus.Status{Code: int32(codes.Unavailable), Message: reason}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health = a
	r.broadcast()
}

// broadcast wakes all goroutines that wait for changed. r.mu is held.
func (r *Relay) broadcast() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// lastConfirmed returns when a control plane last confirmed the configuration; zero: never. r.mu is
// held.
func (r *Relay) lastConfirmed() time.Time {
	now := time.Now().Round(0) // wall clock, because the monotonic clock stops while a machine sleeps
	if r.link != nil || r.confirmed.After(now) {
		return now
	}
	return r.confirmed
}

// saveLoop writes the cache file after changes, regularly while a control plane confirms it, and at
// the end.
func (r *Relay) saveLoop(ctx context.Context) error {
	tick := time.NewTicker(saveDelay)
	defer tick.Stop()
	free := time.AfterFunc(freeDelay, debug.FreeOSMemory) // otherwise the peak memory is returned only after minutes
	defer free.Stop()
	changed, last := false, time.Time{}
	for {
		select {
		case <-ctx.Done():
			r.save()
			return nil
		case <-r.cache.changed:
			changed = true
			continue
		case <-tick.C:
		}
		since := time.Since(last)
		confirmed := since >= r.cfg.MaxAge/24 && r.Status().Connected != ""
		if changed && since >= saveGap || confirmed {
			changed, last = !r.save(), time.Now()
			free.Reset(freeDelay)
		}
	}
}

// save writes the cache file. Status has the error, and a new error is logged.
func (r *Relay) save() (ok bool) {
	r.mu.Lock()
	confirmed := r.lastConfirmed()
	r.mu.Unlock()
	if confirmed.IsZero() {
		return true
	}
	text := ""
	if err := r.cache.save(r.cfg.CacheFile, r.cfg.Owner, confirmed); err != nil {
		text = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if text != "" && text != r.fileErr {
		r.log.Error("the configuration cannot be cached: a restart without a control plane would use an older one",
			"error", text)
	}
	r.fileErr = text
	return text == ""
}

// Status is the state of a relay.
type Status struct {
	// Connected is the address of the control plane in use; empty: none. Since is since when.
	Connected string    `json:"address,omitempty"`
	Since     time.Time `json:"since"`
	// Problem is why there is no connection; empty when there is one.
	Problem string `json:"problem,omitempty"`
	// Confirmed is when a control plane last confirmed the configuration; zero: never.
	Confirmed time.Time `json:"confirmed,omitzero"`
	// CacheRefused is why the cache file was not used, and CacheError why it cannot be written.
	CacheRefused string `json:"copyRefused,omitempty"`
	CacheError   string `json:"copyError,omitempty"`
	// Rejected are the resources that Envoy rejected, with its messages: "Listener web: …". There
	// are at most maxRejected, with at most maxRejectedText bytes each.
	Rejected []string `json:"rejected,omitempty"`
}

// Status returns the current state.
func (r *Relay) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Since: r.since, Problem: r.lastErr, Confirmed: r.lastConfirmed(), Rejected: r.rejected.list(),
		CacheRefused: r.fileRefused, CacheError: r.fileErr}
	if r.link != nil {
		s.Connected, s.Problem = r.link.address, ""
	}
	return s
}

// shortType is the last part of a type URL, "Listener".
func shortType(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }
