package ca

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// apart is a replica beside a lab, with a store of its own to be cut off from and a folder for its
// copy. Its clock is late by so much.
func (l *lab) apart(dir string, late time.Duration) (*Ledger, *faultyStore) {
	l.t.Helper()
	s := &faultyStore{Store: l.store}
	x, err := NewLedger(l.t.Context(), LedgerConfig{Records: s, Dir: dir, TrustDomain: "cluster.local",
		Groups: labGroups, Audit: l.record,
		Now: func() time.Time { return l.now().Add(-late) }})
	if err != nil {
		l.t.Fatal(err)
	}
	return x, s
}

// A revocation that waited for the store does not overrule a restoration that came after it, also
// over a restart. Where that is not sure the revocation counts, and operators are told; where
// nothing of the kind is known it counts.
func TestRestoredWhileUnkept(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before  time.Duration // a restoration was so long before the revocation; zero: none was
		after   time.Duration // one is so long after it; zero: none is
		late    time.Duration // by so much the clock of the replica is late that revokes
		damaged bool          // somebody wrote into the record of the restoration
		out     bool
		problem string
	}{
		"restored later":                   {after: time.Minute, problem: "counts no more: it was restored at"},
		"restored earlier":                 {before: time.Minute, out: true},
		"restored earlier and later":       {before: time.Minute, after: time.Minute, problem: "counts no more"},
		"never":                            {out: true},
		"at about the same time":           {after: clocksApart - time.Second, out: true, problem: "which of the two was later cannot be told"},
		"a clock that is behind":           {after: time.Minute, late: time.Hour, out: true, problem: "which of the two was later cannot be told"},
		"a restoration that is unreadable": {after: time.Minute, damaged: true, out: true},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := newLab(t, nil)
				l.serve()
				l.join("shop/web", "a")
				again := func() {
					l.revoke(RevokeWorkload, "shop/a")
					if err := l.ledger.Restore(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a",
						By: "carol"}); err != nil {
						t.Fatal(err)
					}
				}
				if tc.before > 0 {
					again()
					l.pass(tc.before)
				}
				dir := t.TempDir()
				other, s := l.apart(dir, tc.late)
				s.fail(func([]record.Write) error { return errDisk })
				if err := other.Revoke(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a",
					By: "bob"}); !errors.Is(err, ErrUnkept) {
					t.Fatalf("got %v", err)
				}
				if tc.after > 0 {
					l.pass(tc.after)
					again()
				}
				if tc.damaged {
					if err := l.store.Commit(t.Context(), record.Write{Key: record.Key{Table: restorationTable,
						Name: revocationKey(RevokeWorkload,
							"shop/a").Name}, Value: []byte("x"), Version: record.Any}); err != nil {
						t.Fatal(err)
					}
				}
				l.pass(time.Minute)
				if restart {
					other, _ = l.apart(dir, tc.late)
				} else {
					s.fail(nil)
				}
				if !other.keep(t.Context()) {
					t.Fatal("it is not done with it")
				}
				for _, x := range []*Ledger{l.ledger, other} {
					if r, err := x.Revocations(t.Context()); err != nil || r.Has(RevokeWorkload, "shop/a") != tc.out {
						t.Errorf("it is out: %v, want %v; error %v", !tc.out, tc.out, err)
					}
				}
				if c, found, err := other.dir.readCopy(); err != nil || !found || len(c.Unkept) != 0 ||
					(len(c.Revocations) == 1) != tc.out {
					t.Errorf("the copy has %+v, error %v", c, err)
				}
				switch told := other.Problems(); {
				case tc.problem == "" && len(told) != 0, tc.problem != "" &&
					(len(told) != 1 || !strings.Contains(told[0], tc.problem) || !strings.Contains(told[0], "carol") ||
						!strings.Contains(told[0], "bob")):
					t.Errorf("told are %q, want %q", told, tc.problem)
				}
				code, action := codes.OK, audit.WorkloadRestore
				if tc.out {
					code, action = codes.PermissionDenied, audit.WorkloadRevoke
				}
				if err := l.audited(action, "ashored"); err != nil {
					t.Error(err)
				}
				if _, _, err := l.ask(client{token: l.token("shop/web"), name: "a"}); wantRefused(err, code,
					"") != nil {
					t.Errorf("it joins: %v, want %s", err, code)
				}
			})
		}
	}
}

// What is told of a revocation that came late is over when an operator has had the last word, or
// after a day.
func TestBelatedIsOver(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	l.join("shop/web", "a")
	late := func() {
		l.full()
		if err := l.ledger.Revoke(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a"}); !errors.Is(err,
			ErrUnkept) {
			t.Fatal(err)
		}
		l.store.fail(nil)
		other, _ := l.apart(t.TempDir(), 0)
		l.pass(time.Minute)
		if err := other.Revoke(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a"}); err != nil {
			t.Fatal(err)
		}
		if err := other.Restore(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a"}); err != nil {
			t.Fatal(err)
		}
		if !l.ledger.keep(t.Context()) || !l.problem("counts no more") {
			t.Fatalf("told are %q", l.ledger.Problems())
		}
	}
	late()
	l.revoke(RevokeWorkload, "shop/a")
	if l.problem("counts no more") {
		t.Error("it was revoked again, and is told still")
	}
	if err := l.ledger.Restore(t.Context(), RevokeRequest{Kind: RevokeWorkload, Name: "shop/a"}); err != nil {
		t.Fatal(err)
	}
	l.pass(time.Minute)
	late()
	l.pass(belatedTold)
	if l.problem("counts no more") {
		t.Error("it is told a day later")
	}
}

// When something was restored is known for a while, and then forgotten.
func TestRestorationsAreForgotten(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.revoke(RevokeIdentity, web(t).String())
	if err := l.ledger.Restore(t.Context(), RevokeRequest{Kind: RevokeIdentity, Name: web(t).String(),
		By: "tester"}); err != nil {
		t.Fatal(err)
	}
	for passed, want := range []int{1, 0} {
		l.pass(time.Duration(passed) * restorationKept)
		if err := l.ledger.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all, err := l.store.List(t.Context(), restorationTable); err != nil || len(all) != want {
			t.Errorf("%d are known, want %d; error %v", len(all), want, err)
		}
	}
}
