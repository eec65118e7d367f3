package ca

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// town are houses that share their records: each has a manager of one replica.
type town struct {
	t     *testing.T
	first *house
	m     *Manager
}

// newTown is one whose first house has made the root.
func newTown(t *testing.T) *town {
	t.Helper()
	h := newHouse(t)
	h.config.Replica = "one"
	return &town{t: t, first: h, m: h.move()}
}

// open has the first house look whenever the records change, until the test ends or it is called to
// close.
func (w *town) open() (close func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.m.Run(ctx) }()
	closed := false
	close = func() {
		if !closed {
			closed = true
			cancel()
			<-done
		}
	}
	w.t.Cleanup(close)
	return close
}

// token makes a token, in a file.
func (w *town) token() (file string) {
	w.t.Helper()
	text, _, err := w.m.CreateReplicaToken(w.t.Context(), time.Hour, "op")
	if err != nil {
		w.t.Fatal(err)
	}
	return w.file(text)
}

func (w *town) file(text string) string {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// another is a house of one more replica that was given a token.
func (w *town) another(name, token string) *house {
	w.t.Helper()
	h := newHouse(w.t)
	h.records, h.config.Records, h.config.Replica, h.config.ReplicaToken = w.first.records, w.first.records, name, token
	h.config.Names = nil
	return h
}

// A replica that was given a token signs below the root of the mesh with an intermediate of its
// own, and never has the root's key; nothing secret stands in what they share.
func TestReplica(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	closed := w.open()
	token := w.token()
	h := w.another("two", token)
	two := h.move()
	if two.Bundle().ID != w.m.Bundle().ID || two.Signer().Cert.Equal(w.m.Signer().Cert) {
		t.Error("it has another bundle, or the same intermediate")
	}
	if err := believes(t, two.Signer(), noon, w.m.Bundle().Roots...); err != nil {
		t.Errorf("what it signs is not believed: %v", err)
	}
	if err := joins(t, two, RootID(w.m.Signer().Root), "localhost", noon); err != nil {
		t.Errorf("who knows the root does not believe it as a control plane: %v", err)
	}
	if _, err := os.Stat(h.at(rootFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has the root's key: %v", err)
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	closed()
	if again := h.move(); !again.Signer().Cert.Equal(two.Signer().Cert) { // nobody has to answer
		t.Error("a restart made another intermediate")
	}
	s := show(t, two)
	if len(s.Replicas) != 1 || s.Replicas[0].Name != "one" || s.Replicas[0].Signer.Root != RootID(w.m.Signer().Root) ||
		len(s.Problems) != 0 {
		t.Errorf("it tells of %+v, problems %q", s.Replicas, s.Problems)
	}
	if _, _, err := two.CreateReplicaToken(t.Context(), time.Hour, "op"); !errors.Is(err, ErrReplicaToken) ||
		!strings.Contains(err.Error(), "make it on the replica that has the root's key") {
		t.Errorf("a token without the root's key: %v", err)
	}
	w.secretless(h)
}

// secretless fails when the records hold a part of a private key of a house.
func (w *town) secretless(houses ...*house) {
	w.t.Helper()
	list, err := w.first.records.List(w.t.Context(), table)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range list {
		if bytes.Contains(r.Value, []byte("PRIVATE")) {
			w.t.Errorf("the record %s holds a private key", r.Name)
		}
		var holder struct{ Certificates [][]byte }
		if json.Unmarshal(r.Value, &holder) != nil {
			continue
		}
		for _, der := range holder.Certificates {
			if !bytes.HasPrefix(der, []byte{0x30}) || bytes.Contains(der, []byte("PRIVATE")) {
				w.t.Errorf("the record %s holds what is no certificate", r.Name)
			}
		}
	}
}

// Who does not prove to belong to the mesh gets no intermediate, and is told why and what to do.
func TestReplicaRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		token func(w *town) string
		words string
	}{
		"no token":   {func(*town) string { return "" }, "run \"ashorectl ca replica-token\" there"},
		"no file":    {func(*town) string { return "/no/such/file" }, "setting ca.replicaToken"},
		"no token's": {func(w *town) string { return w.file("ashore-replica.abc") }, "it is not of the form of a replica token"},
		"another mesh": {func(w *town) string {
			other := newTown(w.t)
			return other.token()
		}, "it is of another mesh"},
		"everybody can read it": {func(w *town) string {
			file := w.token()
			if err := os.Chmod(file, 0o644); err != nil {
				w.t.Fatal(err)
			}
			return file
		}, "setting ca.replicaToken"},
		"used by another": {func(w *town) string {
			file := w.token()
			w.another("two", file).move()
			return file
		}, "its replica token was used for another key"},
		"ended": {func(w *town) string {
			file := w.token()
			w.first.mu.Lock()
			w.first.now = w.first.now.Add(2 * time.Hour)
			w.first.mu.Unlock()
			return file
		}, "its replica token ended at"},
		"unknown": {func(w *town) string {
			file := w.token()
			w.first.deleteTokens()
			return file
		}, "there is no such replica token"},
		"made by who can write records": {func(w *town) string { return w.file(w.forge()) }, "is not signed by a root that is trusted"},
		"with another key": {func(w *town) string {
			id, _, _ := strings.Cut(strings.TrimPrefix(w.forge(), replicaTokenPrefix), ".")
			text, _, err := w.m.CreateReplicaToken(w.t.Context(), time.Hour, "op")
			if err != nil {
				w.t.Fatal(err)
			}
			good, _, _ := strings.Cut(strings.TrimPrefix(text, replicaTokenPrefix), ".")
			return w.file(strings.Replace(w.forge(), id, good, 1))
		}, "it does not have the replica token that it names"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTown(t)
			w.open()
			h := w.another("late", tc.token(w))
			_, err := NewManager(t.Context(), h.config)
			if err == nil || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("got %v, want %q", err, tc.words)
			}
		})
	}
}

// A token that was mistyped once is used as soon as it is put right: the answer to the wrong one
// does not stand in its way.
func TestReplicaMistyped(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.open()
	file := w.token()
	right, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndexByte(right, '.') + 5
	wrong := slices.Clone(right)
	for i := range 3 {
		if wrong[at+i] == 'A' {
			wrong[at+i] = 'B'
		} else {
			wrong[at+i] = 'A'
		}
	}
	h := w.another("two", file)
	if err := os.WriteFile(file, wrong, 0o600); err != nil {
		t.Fatal(err)
	}
	var requests []string
	for range 2 {
		_, err = NewManager(t.Context(), h.config)
		var about *ReplicaTokenError
		if !errors.As(err, &about) || about.File != file {
			t.Fatalf("mistyped: got %v, want a ReplicaTokenError of its file", err)
		}
		for _, want := range []string{"setting ca.replicaToken", file,
			"it does not have the replica token that it names", "asks anew"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("mistyped: got %v, want %q in it", err, want)
			}
		}
		requests = append(requests, w.requests())
	}
	if requests[0] != requests[1] {
		t.Error("it asked twice with one token that was refused")
	}
	if err := os.WriteFile(file, right, 0o600); err != nil {
		t.Fatal(err)
	}
	two, err := NewManager(t.Context(), h.config)
	if err != nil {
		t.Fatalf("put right: %v", err)
	}
	if err := believes(t, two.Signer(), noon, w.m.Bundle().Roots...); err != nil {
		t.Error(err)
	}
}

// requests are what replicas ask for, by the records.
func (w *town) requests() string {
	w.t.Helper()
	list, err := w.first.records.List(w.t.Context(), table)
	if err != nil {
		w.t.Fatal(err)
	}
	var out strings.Builder
	for _, rec := range list {
		var r replicaRecord
		if strings.HasPrefix(rec.Name, replicaRecords) && json.Unmarshal(rec.Value, &r) == nil && r.Request != nil {
			fmt.Fprintf(&out, "%s %x\n", rec.Name, r.Request.CSR)
		}
	}
	return out.String()
}

// deleteTokens has the records know of no token.
func (h *house) deleteTokens() {
	h.t.Helper()
	list, err := h.records.List(h.t.Context(), table)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range list {
		if strings.HasPrefix(r.Name, replicaTokens) {
			if err := h.records.Commit(h.t.Context(), record.Write{Key: r.Key, Version: r.Version}); err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// forge is a token that somebody made who can write records, and has no root's key.
func (w *town) forge() string {
	w.t.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	secret := replicaSecret{strings.Repeat("a", idEncoding().EncodedLen(tokenID)), key, RootID(w.m.Signer().Root)}
	value, err := json.Marshal(replicaToken{Format: 1, Public: key.Public().(ed25519.PublicKey), Root: secret.root,
		Signature: []byte("x"), Created: noon, Expires: noon.Add(time.Hour)})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.first.records.Commit(w.t.Context(), record.Write{Key: record.Key{Table: table,
		Name: replicaTokens + secret.id}, Value: value, Version: record.Any}); err != nil {
		w.t.Fatal(err)
	}
	text, err := secret.text()
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// settledTown is two replicas, of which nobody looks by himself.
func settledTown(t *testing.T) (w *town, h *house, two *Manager) {
	t.Helper()
	w = newTown(t)
	closed := w.open()
	h = w.another("two", w.token())
	two = h.move()
	closed()
	return w, h, two
}

// both lets time go by in both houses, and has them look in turns, the second one first.
func (w *town) both(h *house, two *Manager, d time.Duration) {
	h.later(nil, d)
	w.first.later(nil, d)
	for range 3 {
		h.later(two, 0)
		w.first.later(w.m, 0)
	}
}

// An intermediate is renewed by itself at half of its life, and while nobody who has the root's key
// answers it signs on.
func TestReplicaRenews(t *testing.T) {
	t.Parallel()
	w, h, two := settledTown(t)
	before := two.Signer().Cert
	h.later(two, intermediateLife/2+time.Hour)
	if s := show(t, two); !two.Signer().Cert.Equal(before) || len(s.Problems) != 1 ||
		!strings.Contains(s.Problems[0], "cannot be renewed") {
		t.Errorf("while nobody answers: problems %q", s.Problems)
	}
	w.both(h, two, 0) // the other one's clock is late
	if s := show(t, two); !two.Signer().Cert.Equal(before) || len(s.Problems) != 1 ||
		!strings.Contains(s.Problems[0], ErrClock.Error()) {
		t.Errorf("while the clocks differ: problems %q", s.Problems)
	}
	w.first.later(nil, h.ahead(w.first))
	w.both(h, two, 0)
	if s := show(t, two); two.Signer().Cert.Equal(before) || len(s.Problems) != 0 {
		t.Errorf("it was not renewed: problems %q", s.Problems)
	}
	if err := believes(t, two.Signer(), two.config.Now(), w.m.Bundle().Roots...); err != nil {
		t.Error(err)
	}
}

// ahead is how much later it is in a house than in another.
func (h *house) ahead(of *house) time.Duration {
	return h.config.Now().Sub(of.config.Now())
}

// A rotation waits for each replica to have an intermediate below the new root, and then all sign
// with it.
func TestReplicaRotation(t *testing.T) {
	t.Parallel()
	w, h, two := settledTown(t)
	old := w.m.Signer().Root
	s, err := w.m.Rotate(t.Context(), RotateRequest{Actor: "op"})
	if err != nil {
		t.Fatal(err)
	}
	w.first.later(w.m, settling+time.Second)
	if s = show(t, w.m); s.Rotation.Step != StepDistribute || s.Rotation.Count != 1 ||
		s.Rotation.Waiting[0].Name != "two" {
		t.Fatalf("it does not wait for the other replica: %+v", s.Rotation)
	}
	h.later(nil, settling+time.Second)
	w.both(h, two, 0)
	for name, m := range map[string]*Manager{"one": w.m, "two": two} {
		if RootID(m.Signer().Root) == RootID(old) {
			t.Errorf("%s signs with the old root", name)
		}
		for _, root := range m.Bundle().Roots {
			if err := believes(t, m.Signer(), m.config.Now(), root); err != nil {
				t.Errorf("who trusts one root does not believe %s: %v", name, err)
			}
		}
	}
	w.both(h, two, settling+time.Second)
	if s = show(t, two); s.Rotation.Step != None || len(two.Bundle().Roots) != 1 || two.Bundle().ID != w.m.Bundle().ID {
		t.Errorf("at the end: %+v", s.Rotation)
	}
	if again := h.move(); !again.Signer().Cert.Equal(two.Signer().Cert) {
		t.Error("a restart made another intermediate")
	}
	w.secretless(h)
}

// A replica that was away while the new root was forced to sign gets an intermediate below it when
// it is back, as long as the old root is trusted; afterwards it needs a token, and its intermediate
// is worth nothing.
func TestReplicaPassedOver(t *testing.T) {
	t.Parallel()
	for name, retired := range map[string]bool{"until retire": false, "after retire": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, h, two := settledTown(t)
			old := two.Signer().Cert
			steps := []Step{None, StepActivate}
			if retired {
				steps = append(steps, StepRetire)
			}
			for _, s := range steps {
				if _, err := w.m.Rotate(t.Context(), RotateRequest{Actor: "op", Force: s}); err != nil {
					t.Fatal(err)
				}
			}
			w.both(h, two, 0)
			s := show(t, two)
			if two.Bundle().ID != w.m.Bundle().ID {
				t.Error("it trusts other roots than the one that has the key")
			}
			if retired {
				if !two.Signer().Cert.Equal(old) || len(s.Problems) == 0 ||
					!strings.Contains(s.Problems[len(s.Problems)-1], "ca.replicaToken") &&
						!strings.Contains(s.Problems[len(s.Problems)-1], "make a new one") {
					t.Errorf("problems %q", s.Problems)
				}
				h.config.ReplicaToken = w.token()
				w.open()
				two = h.move()
			}
			if RootID(two.Signer().Root) != RootID(w.m.Signer().Root) {
				t.Errorf("it does not sign with the new root: %q", s.Problems)
			}
			if err := believes(t, two.Signer(), two.config.Now(), w.m.Signer().Root); err != nil {
				t.Error(err)
			}
		})
	}
}

// lateStore does not have the root at first: another replica makes it at the same moment.
type lateStore struct {
	record.Store
	asked int
}

func (s *lateStore) Get(ctx context.Context, k record.Key) (record.Record, error) {
	if k == rotationKey() {
		if s.asked++; s.asked == 1 {
			return record.Record{Key: k}, nil
		}
	}
	return s.Store.Get(ctx, k)
}

// Who can write to the store does not lead a replica that has asked below a root of his own.
func TestReplicaMisled(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	h := w.another("two", w.token())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := NewManager(ctx, h.config); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nobody answers: %v", err)
	}
	rogue := newTown(t) // another mesh, whose owner answers
	list, err := w.first.records.List(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if r.Key != rotationKey() {
			if err := rogue.first.records.Commit(t.Context(), record.Write{Key: r.Key, Value: r.Value,
				Version: record.Any}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var asked replicaRecord
	id := ""
	for _, r := range list {
		if name, ok := strings.CutPrefix(r.Name, replicaRecords); ok && json.Unmarshal(r.Value, &asked) == nil &&
			asked.Request != nil {
			id = name
		}
	}
	csr, err := x509.ParseCertificateRequest(asked.Request.CSR)
	if err != nil {
		t.Fatal(err)
	}
	root := rogue.m.own.keys[RootID(rogue.m.Signer().Root)]
	above, err := NewSigner(root.cert, root.key, nil, root.cert, noon)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := above.NewIntermediate(Authority{Name: "x", Validity: time.Hour, Leaves: true}, csr.PublicKey, noon,
		rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := rogue.m.own.writeReplica(t.Context(), id, asked.with(cert, noon), record.Any); err != nil {
		t.Fatal(err)
	}
	h.config.Records = rogue.first.records
	if _, err := NewManager(t.Context(), h.config); err == nil ||
		!strings.Contains(err.Error(), "it is of another mesh") {
		t.Errorf("got %v", err)
	}
}

// Of two replicas that begin at once one makes the root, and the other has none: with a token it is
// started again.
func TestReplicasBegin(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	h := w.another("two", "")
	h.config.Records = &lateStore{Store: w.first.records}
	if _, err := NewManager(t.Context(), h.config); err == nil || !strings.Contains(err.Error(), "ca.replicaToken") {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(h.at(rootFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a root that counts for nobody is left: %v", err)
	}
	w.open()
	h.config.ReplicaToken = w.token()
	h.config.Records = w.first.records
	if two := h.move(); two.Bundle().ID != w.m.Bundle().ID {
		t.Error("they trust different roots")
	}
}

// Who has a token for a mesh makes no root of his own where that is not to be found, as below a
// prefix with a slip of the pen.
func TestReplicaElsewhere(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	h := w.another("two", w.token())
	h.config.Records = record.NewMemory()
	if _, err := NewManager(t.Context(), h.config); err == nil || !strings.Contains(err.Error(), "ca.replicaToken") {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(h.at(rootFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a root was made: %v", err)
	}
}

// A replica whose clock is late is told of that, and gets one intermediate, not one each second.
func TestReplicaLate(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.first.later(w.m, time.Hour)
	closeFirst := w.open()
	h := w.another("late", w.token())
	h.later(nil, 30*time.Minute)
	_, err := NewManager(t.Context(), h.config)
	if err == nil || !strings.Contains(err.Error(), "set the clock") {
		t.Errorf("got %v", err)
	}
	closeFirst() // it writes down what it did after it answered
	if n := len(w.first.audited(audit.ReplicaIssue)); n != 1 {
		t.Errorf("it got %d intermediates", n)
	}
}

// A replica whose clock is far ahead takes another one for ended, and forgets it once, not each
// time that it is there again.
func TestReplicaAhead(t *testing.T) {
	t.Parallel()
	w, h, two := settledTown(t)
	w.first.later(nil, 2*intermediateLife)
	key := record.Key{Table: table, Name: replicaRecords + two.own.replica.id}
	versions := map[string]bool{}
	for range 5 {
		w.first.later(w.m, 0)
		h.later(two, 0)
		r, err := h.records.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		versions[r.Version] = true
	}
	if len(versions) != 1 || versions[""] {
		t.Errorf("its record has had the versions %v", versions)
	}
}

// Who answers twice is asked once: a replica that was killed before it took its intermediate gets
// one for the same key.
func TestReplicaAsksAgain(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	h := w.another("two", w.token())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := NewManager(ctx, h.config); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nobody answers: %v", err)
	}
	w.first.later(w.m, 0)
	two := h.move() // the answer is there already
	if err := believes(t, two.Signer(), noon, w.m.Bundle().Roots...); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.at(askedFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key that was asked for is left: %v", err)
	}
}
