package ca

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/record"
)

// Files of a replica among others.
const (
	replicaFile = "replica-id"                // what the records call it
	askedFile   = "asked-key.pem"             // the key that an intermediate is asked for
	nextFile    = "next-intermediate-key.pem" // below the new root, while a rotation goes on
)

// replicaRecords is where replicas stand in the table, by their ids.
const replicaRecords = "replica/"

// membership is what an authority needs to be one of several replicas.
type membership struct {
	// name is what people call it, and tokenFile where a replica token may stand.
	name, tokenFile string
	// id is what the records call it.
	id string
	// record is its own, at version; empty: there is none.
	record  replicaRecord
	version string
	// others are those that are there, by id, and versions those of their records.
	others   map[string]replicaRecord
	versions map[string]string
	// unsaid is that this one is there, for sayHere to write; nil: the records know.
	unsaid *record.Write
	// said is what this one had its record say of late, and when.
	said map[string]time.Time
	// forgot is when this one has forgotten others, by id.
	forgot map[string]time.Time
	// alive says whether the replica of an id serves; nil: nobody can tell but by its record.
	alive func(id string) bool
	// twin is another one that serves and has the same id, empty: there is none; nil: nobody can
	// tell.
	twin func() string
	// trouble is why something among them could not be done; empty: nothing.
	trouble string
}

// replicaRecord is what the records have of a replica. Nothing in it is secret.
type replicaRecord struct {
	Format int    `json:"v"`
	Name   string `json:"name"`
	// Request is what it asks for; nil: nothing.
	Request *replicaRequest `json:"request,omitempty"`
	// Refused says why it does not get that, and RefusedAt when that was, by the clock of who
	// refused it; empty: it was not refused.
	Refused   string    `json:"refused,omitempty"`
	RefusedAt time.Time `json:"refusedAt,omitzero"`
	// Ahead says that it was refused because its clock is: it is judged anew when one of the two
	// clocks is set.
	Ahead bool `json:"ahead,omitempty"`
	// Seen is when it was there last, by its own clock; zero: a version wrote it that does not
	// tell.
	Seen time.Time `json:"seen,omitzero"`
	// Certificates are its intermediates, DER, the latest last.
	Certificates [][]byte `json:"certificates,omitempty"`
}

// replicaRequest asks for an intermediate.
type replicaRequest struct {
	// Root is the one that it is to be below.
	Root string `json:"root"`
	// CSR is the signing request, DER.
	CSR []byte `json:"csr"`
	// Token is the ID of the replica token that proves it, or By the intermediate whose key does,
	// DER.
	Token string `json:"token,omitempty"`
	By    []byte `json:"by,omitempty"`
	// Proof is a signature of proven.
	Proof []byte    `json:"proof"`
	At    time.Time `json:"at"`
}

// proven is what a request is proven by signing.
func (q *replicaRequest) proven(domain, id string) []byte {
	return fmt.Appendf(nil, "ashore replica\n%s\n%s\n%s\n%x", domain, id, q.Root, sha256.Sum256(q.CSR))
}

// certificates are those that can be read.
func (r replicaRecord) certificates() []*x509.Certificate {
	var out []*x509.Certificate
	for _, der := range r.Certificates {
		if c, err := x509.ParseCertificate(der); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// with is the record with one more certificate, and without those that have ended.
func (r replicaRecord) with(c *x509.Certificate, now time.Time) replicaRecord {
	kept := [][]byte{}
	for _, old := range r.certificates() {
		if now.Before(old.NotAfter) && !old.Equal(c) {
			kept = append(kept, old.Raw)
		}
	}
	r.Format, r.Certificates = 1, append(kept[max(0, len(kept)-3):], c.Raw)
	return r
}

// under says until when a replica has an intermediate below a root; zero: it has none.
func (r replicaRecord) under(root *x509.Certificate, now time.Time) time.Time {
	var until time.Time
	for _, c := range r.certificates() {
		if (&pair{cert: c}).under(root, now) {
			until = later(until, c.NotAfter)
		}
	}
	return until
}

// open finds out what the records call this replica; a new one gets an id.
func (m *membership) open(dir folder) error {
	text, _, err := readfile.Read(dir.at(replicaFile), 1<<10)
	if err == nil {
		if m.id = strings.TrimSpace(string(text)); len(m.id) == 32 {
			return nil
		}
		return fmt.Errorf("%s is damaged: remove it, and this replica gets another name", dir.at(replicaFile))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	m.id = hex.EncodeToString(id)
	return dir.write(replicaFile, []byte(m.id+"\n"), 0o600)
}

// readReplicas reads who is there.
func (s *selfSigned) readReplicas(ctx context.Context) error {
	list, err := s.records.records.List(ctx, table)
	if err != nil {
		return err
	}
	m := s.replica
	m.record, m.version, m.others, m.versions, m.unsaid = replicaRecord{}, "", map[string]replicaRecord{}, map[string]string{}, nil
	for _, rec := range list {
		id, ok := strings.CutPrefix(rec.Name, replicaRecords)
		if !ok {
			continue
		}
		var r replicaRecord
		if err := json.Unmarshal(rec.Value, &r); err != nil || r.Format != 1 {
			s.log.Warn("the record of a replica cannot be read: until that replica writes it anew, a rotation does not wait for it", "table", table, "record", rec.Name, "error", err)
			r = replicaRecord{}
		}
		if id == m.id {
			m.record, m.version = r, rec.Version
		} else {
			m.others[id], m.versions[id] = r, rec.Version
		}
	}
	return nil
}

// writeReplica replaces a replica's record that was read at a version, with other writes. Errors:
// record.ErrConflict.
func (s *selfSigned) writeReplica(ctx context.Context, id string, r replicaRecord, version string,
	more ...record.Write) error {
	w, err := r.write(id, version)
	if err != nil {
		return err
	}
	return s.records.records.Commit(ctx, append(more, w)...)
}

// write replaces the record of a replica that was read at a version.
func (r replicaRecord) write(id, version string) (record.Write, error) {
	value, err := json.Marshal(r)
	return record.Write{Key: record.Key{Table: table, Name: replicaRecords + id}, Value: value, Version: version}, err
}

// enlist has the records know this replica and its intermediates, so that a rotation waits for it,
// and now and then that it is there.
func (s *selfSigned) enlist(ctx context.Context, now time.Time) error {
	m := s.replica
	mine := []*x509.Certificate{s.signer.Cert}
	if p, err := s.dir.pair(nextFile); err == nil && p != nil && now.Before(p.cert.NotAfter) {
		mine = append(mine, p.cert)
	}
	r, known := m.record, m.record.Name == m.name
	for _, c := range mine {
		if !slices.ContainsFunc(r.Certificates, func(der []byte) bool { return bytes.Equal(der, c.Raw) }) {
			r, known = r.with(c, now), false
		}
	}
	if known {
		return m.stillHere(now)
	}
	what := m.hasAll(mine)
	if err := m.contested(s.dir, what, now); err != nil {
		return err
	}
	r.Name, r.Seen = m.name, now.UTC()
	err := s.writeReplica(ctx, m.id, r, m.version)
	if errors.Is(err, record.ErrConflict) {
		return nil // it was answered at this moment: the next look sees
	} else if err == nil {
		m.note(what, now)
	}
	return err
}

// foresee has this replica have an intermediate below the new root before that signs.
func (s *selfSigned) foresee(ctx context.Context, now time.Time) error {
	if s.state.Step != StepDistribute {
		return nil
	}
	root, err := s.state.root(s.state.Next)
	if err != nil {
		return err
	}
	if p, err := s.dir.pair(nextFile); err == nil && p != nil && p.under(root, now) {
		return nil
	}
	if by, err := s.rootKey(root); err == nil {
		_, err = s.makeIntermediate(by, nextFile, now)
		return err
	}
	if _, err := s.asked(ctx, root, nextFile, now); err != nil && !errors.Is(err, errAsked) {
		return err
	}
	return nil
}

// swap puts an intermediate below a root that was foreseen into the place of the one before.
func (s *selfSigned) swap(root *x509.Certificate, now time.Time) error {
	if s.replica == nil || s.inter != nil && s.inter.under(root, now) || !s.dir.has(nextFile) {
		return nil
	}
	p, err := s.dir.pair(nextFile)
	if err != nil || !p.under(root, now) {
		return err
	}
	s.inter = p
	return s.dir.rename(nextFile, intermediateFile)
}

// concert does a replica's part among others: it tells of itself, foresees a rotation and answers
// those who ask. What fails is told of, and tried again with the next look; signing goes on.
func (s *selfSigned) concert(ctx context.Context, now time.Time) {
	if s.replica == nil {
		return
	}
	text := ""
	if err := errors.Join(s.foresee(ctx, now), s.enlist(ctx, now), s.answer(ctx, now)); err != nil && ctx.Err() == nil {
		text = "this replica's part among the others is not done: " + err.Error()
		if text != s.replica.trouble {
			s.log.Error("this replica's part among the others is not done", "error", err)
		}
	}
	s.replica.trouble = text
}

// lagging are the replicas that could not sign below the new root yet.
func (s *selfSigned) lagging(now time.Time) []Waiting {
	if s.replica == nil || s.state.Step != StepDistribute {
		return nil
	}
	active, err := s.state.root(s.state.Active)
	if err != nil {
		return nil // told of elsewhere
	}
	next, err := s.state.root(s.state.Next)
	if err != nil {
		return nil
	}
	var w []Waiting
	for _, r := range s.replica.others {
		until := r.under(active, now)
		if until.IsZero() || !r.under(next, now).IsZero() {
			continue
		}
		w = append(w, Waiting{Kind: "control plane", Name: r.Name,
			Reason: "this replica has no intermediate below the new root yet", Until: until.UTC()})
	}
	slices.SortFunc(w, func(a, b Waiting) int { return strings.Compare(a.Name, b.Name) })
	return w
}
