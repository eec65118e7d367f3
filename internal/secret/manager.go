package secret

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
)

const (
	// interval is how often the folder is read, and a source that failed.
	interval = 5 * time.Second
	// checkInterval is how often unchanged secrets of the store and of the cluster are checked:
	// certificates expire. There may be many.
	checkInterval = time.Minute
)

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
	// Read returns the secrets to use, and an error if there may be others now. In an outage it returns
	// those that were read last.
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
	cfg     Config    // immutable
	store   store     // immutable
	sources []*source // used by Run alone; those that take precedence are later

	mu       sync.Mutex
	set      *Set            // guarded by mu; nil before the first read
	from     map[Name]string // guarded by mu: the source of each secret of set
	secrets  map[Name]Secret // guarded by mu: those of set
	problems []feed.Problem  // guarded by mu
}

// source is a source of secrets, and what is used of it.
type source struct {
	name     string
	read     func(context.Context) found
	interval time.Duration // from a read to the next, if nothing changes
	due      time.Time     // when it is read next; zero: at once

	secrets  map[Name]Secret
	problems []feed.Problem
}

// NewManager returns a Manager. Run reads.
func NewManager(cfg Config) *Manager {
	m := &Manager{cfg: cfg, store: store{cfg.Records, cfg.KeyFile}}
	add := func(name string, interval time.Duration, read func(context.Context) found) {
		m.sources = append(m.sources, &source{name: name, read: read, interval: interval})
	}
	if cfg.Cluster != nil {
		add(FromCluster, checkInterval, func(context.Context) found {
			in := newFound()
			in.secrets, in.err = cfg.Cluster.Read()
			return in
		})
	}
	add(FromStore, checkInterval, m.store.read)
	if cfg.Dir != "" {
		add(FromFolder, 0, func(context.Context) found { return readFolder(cfg.Dir) })
	}
	return m
}

// Run sends the secrets once they were read, and after each change, until ctx ends.
func (m *Manager) Run(ctx context.Context, out chan<- *Set) error {
	stored := m.cfg.Records.Watch(ctx, table)
	var cluster <-chan struct{}
	if m.cfg.Cluster != nil {
		cluster = m.cfg.Cluster.Watch(ctx)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var sent *Set
	for {
		next := m.merge(ctx, time.Now())
		send := out
		if next == sent {
			send = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case send <- next:
			sent = next
		case <-stored:
			m.changed(FromStore)
		case <-cluster:
			m.changed(FromCluster)
		case <-tick.C:
		}
	}
}

// changed makes a source be read at once.
func (m *Manager) changed(source string) {
	for _, s := range m.sources {
		if s.name == source {
			s.due = time.Time{}
		}
	}
}

// merge reads the sources that are due, and returns the secrets that are in use now.
func (m *Manager) merge(ctx context.Context, now time.Time) *Set {
	var problems []feed.Problem
	all, from := map[Name]Secret{}, map[Name]string{}
	for _, s := range m.sources {
		if !now.Before(s.due) {
			s.update(s.read(ctx), now)
		}
		problems = append(problems, s.problems...)
		for n, secret := range s.secrets {
			if other, twice := from[n]; twice {
				problems = append(problems, problem(feed.Warning, n, fmt.Sprintf("the %s and the %s have it: that of the %s "+
					"is used; remove one of them", s.name, other, s.name)))
			}
			all[n], from[n] = secret, s.name
		}
	}
	slices.SortFunc(problems, func(a, b feed.Problem) int { return strings.Compare(a.Object, b.Object) })
	m.mu.Lock()
	defer m.mu.Unlock()
	restricted := func(n Name) bool { return from[n] == FromCluster }
	m.set, m.from, m.secrets, m.problems = NewSet(m.set, all, restricted), from, all, problems
	return m.set
}

// update replaces the secrets of a source. In place of one that is unusable, the one that was read
// before stays. All stay while the source cannot be read, or is a folder that became empty.
func (s *source) update(in found, now time.Time) {
	if s.name == FromFolder && in.err == nil && len(in.secrets)+len(in.failed) == 0 && len(s.secrets) > 0 {
		in = found{err: errors.New("it has become empty: put the files back into secrets.dir, or restart ashored if that " +
			"is intended")}
	}
	s.problems = nil
	if in.err != nil {
		s.problems = []feed.Problem{{Severity: feed.Error, Source: "secrets", Stale: len(s.secrets) > 0,
			Text: fmt.Sprintf("the secrets of the %s cannot be read; those that were read before stay in use: %v", s.name,
				in.err)}}
	}
	if in.secrets == nil {
		return
	}
	if s.interval > 0 && len(in.failed) == 0 { // else it is read again soon
		s.due = now.Add(s.interval)
	}
	before := s.secrets
	s.secrets = map[Name]Secret{}
	for n, secret := range in.secrets {
		err := secret.checkPublic(now)
		if err == nil && before[n] != secret {
			err = secret.checkKey()
		}
		if err != nil {
			in.failed[n] = err
			continue
		}
		s.secrets[n] = secret
	}
	for n, err := range in.failed {
		p := problem(feed.Error, n, err.Error()+"; it is not used")
		if s.name == FromCluster { // it may not be for a gateway
			p.Severity = feed.Warning
		}
		if old, ok := before[n]; ok {
			s.secrets[n] = old
			p.Stale, p.Text = true, err.Error()+"; what was read before stays in use"
		}
		s.problems = append(s.problems, p)
	}
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
		out = append(out, describe(n, s, m.from[n]))
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
