package secret

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
)

// interval is how often the folder is read, and times of expiry are checked.
const interval = 5 * time.Second

// Config configures a Manager.
type Config struct {
	// Dir is a folder with the files NAMESPACE/NAME/{tls.crt,tls.key,ca.crt,ca.crl}. Empty: none. Its
	// secrets take precedence over those of the store.
	Dir string
	// Records is the store.
	Records record.Store
	// KeyFile has the key of the store's secrets. It is made when the first secret is created.
	KeyFile string
	// Cluster has the Secrets of a cluster. Those of the folder and of the store take precedence. Nil:
	// none.
	Cluster Source
}

// Source is a further source of secrets.
type Source interface {
	// Watch reports, until ctx ends, that Read returns something else.
	Watch(ctx context.Context) <-chan struct{}
	// Read returns the secrets that were read last, and an error if there may be others now.
	Read() (map[Name]Secret, error)
}

// The sources of secrets.
const (
	FromFolder  = "folder"
	FromStore   = "store"
	FromCluster = "cluster"
)

// Status describes a secret without its key.
type Status struct {
	Name
	// Source is FromFolder, FromStore or FromCluster.
	Source string `json:"source"`
	// Hosts are the DNS names in the certificate, or its subject, and Expires is when it or an intermediate expires. Empty
	// and zero if it has authorities only.
	Hosts   []string  `json:"hosts,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	// Authorities is the number of certificates of authorities.
	Authorities int `json:"authorities"`
}

// Manager reads secrets and publishes them. Safe for concurrent use.
type Manager struct {
	cfg   Config // immutable
	store store  // immutable

	mu       sync.Mutex
	set      *Set                       // guarded by mu; nil before the first read
	sources  map[Name]string            // guarded by mu: where each secret of set is from
	secrets  map[Name]Secret            // guarded by mu: those of set
	problems []feed.Problem             // guarded by mu: of the last read
	accepted map[string]map[Name]Secret // by source; used by Run alone
	cluster  checked                    // used by Run alone
}

// checked are the usable secrets of the cluster. There may be many, so they are not checked each time.
type checked struct {
	secrets  map[Name]Secret
	problems []feed.Problem
	at       time.Time // zero: they have to be checked
}

// checkInterval is how often unchanged secrets of the cluster are checked: certificates expire.
const checkInterval = time.Minute

// NewManager returns a Manager. Run reads.
func NewManager(cfg Config) *Manager {
	return &Manager{cfg: cfg, store: store{cfg.Records, cfg.KeyFile}, accepted: map[string]map[Name]Secret{}}
}

// Run sends the secrets once they were read, and after each change, until ctx ends.
func (m *Manager) Run(ctx context.Context, out chan<- *Set) error {
	changed := m.cfg.Records.Watch(ctx, table)
	var cluster <-chan struct{}
	if m.cfg.Cluster != nil {
		cluster = m.cfg.Cluster.Watch(ctx)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var sent *Set
	stored := m.store.read(ctx)
	for {
		next := m.merge(stored, time.Now())
		send := out
		if next == sent {
			send = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case send <- next:
			sent = next
			continue
		case <-changed:
			stored = m.store.read(ctx)
		case <-cluster:
			m.cluster.at = time.Time{}
		case <-tick.C:
			if stored.err != nil || len(stored.failed) > 0 {
				stored = m.store.read(ctx)
			}
		}
	}
}

// merge reads the folder and the cluster, and returns the secrets that are in use now.
func (m *Manager) merge(stored found, now time.Time) *Set {
	var problems []feed.Problem
	all, sources := map[Name]Secret{}, map[Name]string{}
	use := func(source string, secrets map[Name]Secret, found []feed.Problem) {
		problems = append(problems, found...)
		for n, s := range secrets {
			if other, twice := sources[n]; twice {
				problems = append(problems, problem(feed.Warning, n, fmt.Sprintf("the %s and the %s have it: that of the %s "+
					"is used; remove one of them", source, other, source)))
			}
			all[n], sources[n] = s, source
		}
	}
	if m.cfg.Cluster != nil {
		if now.Sub(m.cluster.at) >= checkInterval {
			in := newFound()
			in.secrets, in.err = m.cfg.Cluster.Read()
			m.cluster.at = now
			m.cluster.secrets, m.cluster.problems = m.accept(FromCluster, in, sources, now)
		}
		use(FromCluster, m.cluster.secrets, m.cluster.problems)
	}
	fromStore, found := m.accept(FromStore, stored, sources, now)
	use(FromStore, fromStore, found)
	if m.cfg.Dir != "" {
		fromFolder, found := m.accept(FromFolder, readFolder(m.cfg.Dir), sources, now)
		use(FromFolder, fromFolder, found)
	}
	slices.SortFunc(problems, func(a, b feed.Problem) int { return strings.Compare(a.Object, b.Object) })
	m.mu.Lock()
	defer m.mu.Unlock()
	restricted := func(n Name) bool { return sources[n] == FromCluster }
	m.set, m.sources, m.secrets, m.problems = NewSet(m.set, all, restricted), sources, all, problems
	return m.set
}

// accept returns the usable secrets of a source. In place of one that is unusable, the one that was
// read before stays, or that of another source is used. All stay while the source cannot be read, or
// is a folder that became empty. others are the secrets of other sources.
func (m *Manager) accept(source string, in found, others map[Name]string, now time.Time) (map[Name]Secret,
	[]feed.Problem) {
	before := m.accepted[source]
	if source == FromFolder && in.err == nil && len(in.secrets)+len(in.failed) == 0 && len(before) > 0 {
		in.err = fmt.Errorf("%s has become empty: put the files back, or restart ashored if that is intended", m.cfg.Dir)
	}
	if in.err != nil {
		return before, []feed.Problem{{Severity: feed.Error, Source: "secrets", Stale: len(before) > 0,
			Text: fmt.Sprintf("the secrets of the %s cannot be read; those that were read before stay in use: %v", source,
				in.err)}}
	}
	out := map[Name]Secret{}
	var problems []feed.Problem
	failed := maps.Clone(in.failed)
	for n, s := range in.secrets {
		err := s.checkPublic(now)
		if err == nil && before[n] != s {
			err = s.checkKey()
		}
		if err != nil {
			failed[n] = err
			continue
		}
		out[n] = s
	}
	for n, err := range failed {
		severity := feed.Error
		if source == FromCluster { // it may not be for a gateway
			severity = feed.Warning
		}
		p := problem(severity, n, err.Error()+"; no proxy gets it")
		if old, ok := before[n]; ok {
			out[n] = old
			p.Stale, p.Text = true, err.Error()+"; what was read before stays in use"
		} else if other, ok := others[n]; ok {
			p.Text = err.Error() + "; that of the " + other + " is used"
		}
		problems = append(problems, p)
	}
	m.accepted[source] = out
	return out, problems
}

func problem(severity feed.Severity, n Name, text string) feed.Problem {
	return feed.Problem{Severity: severity, Source: "secrets", Object: "secret " + n.String(), Text: text}
}

// Problems returns why secrets are not in use, or not as their source says.
func (m *Manager) Problems() []feed.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.problems)
}

// List describes the secrets in use, by name.
func (m *Manager) List() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Status, 0, len(m.secrets))
	for n, s := range m.secrets {
		out = append(out, describe(n, s, m.sources[n]))
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// describe describes a valid secret.
func describe(n Name, s Secret, source string) Status {
	out := Status{Name: n, Source: source}
	chain, _ := certificates(s.Certificate)
	for _, c := range chain {
		if out.Expires.IsZero() || c.NotAfter.Before(out.Expires) {
			out.Expires = c.NotAfter
		}
	}
	if len(chain) > 0 {
		out.Hosts = hosts(chain[0])
	}
	authorities, _ := certificates(s.Authorities)
	out.Authorities = len(authorities)
	return out
}

// ErrInvalid means that proxies could not use a secret.
var ErrInvalid = errors.New("the secret cannot be used")

// Create writes a secret to the store. It replaces one of that name. Errors: ErrInvalid.
func (m *Manager) Create(ctx context.Context, n Name, s Secret) (Status, error) {
	if err := cmp.Or(n.Check(), s.Check(time.Now())); err != nil {
		return Status{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := m.store.put(ctx, n, s); err != nil {
		return Status{}, err
	}
	return describe(n, s, FromStore), nil
}

// Delete deletes a secret from the store. Errors: ErrNotFound.
func (m *Manager) Delete(ctx context.Context, n Name) error { return m.store.remove(ctx, n) }
