package ca

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// rewriteGap is how long a replica lets its own record stand that somebody has changed after it was
// written.
const rewriteGap = time.Minute

// note notes that this replica had its record say something.
func (m *membership) note(what string, now time.Time) {
	maps.DeleteFunc(m.said, func(_ string, at time.Time) bool { return now.Sub(at).Abs() >= rewriteGap })
	if m.said == nil {
		m.said = map[string]time.Time{}
	}
	m.said[what] = now
}

// contested says why this replica does not have its record say something: another one has the same
// ID and writes it too, and the two would overrule one another without end, or somebody else does.
// Nil: it may be written.
func (m *membership) contested(dir folder, what string, now time.Time) error {
	if m.version == "" {
		return nil
	}
	at, before := m.said[what]
	again := before && now.Sub(at).Abs() < rewriteGap
	named, twin := m.record.Name != m.name && m.record.Name != "", m.sameID()
	switch {
	case m.twin == nil && again && m.record.Format != 0, (again || named) && twin != "":
	case again:
		return fmt.Errorf("the record of this replica, which it wrote %s ago, was overwritten since: it writes it anew when %s have gone by; see who writes to the store but the replicas, and whether another ashored has a copy of %s",
			now.Sub(at).Abs().Round(time.Second), rewriteGap, dir.at(replicaFile))
	default:
		return nil
	}
	if twin == "" && named {
		twin = m.record.Name
	}
	return errors.New(twins(dir, cmp.Or(twin, "another ashored")+" too, which writes the same record"))
}

// sameID is another replica that serves and has the ID of this one; empty: nobody knows of one.
func (m *membership) sameID() string {
	if m.twin == nil {
		return ""
	}
	return m.twin()
}

// twins says what to do about two replicas with one ID.
func twins(dir folder, who string) string {
	return fmt.Sprintf("%s is that of %s: one of the two has a copy of the other's state folder; on the one that is the copy stop ashored, remove that file and start it again", dir.at(replicaFile), who)
}

// told is what operators are told of how this one stands among the others. Each of two with one ID
// says so, also while it writes nothing that the other one overrules.
func (m *membership) told(dir folder) []string {
	var out []string
	if m.trouble != "" {
		out = append(out, m.trouble)
	}
	if twin := m.sameID(); twin != "" && !strings.Contains(m.trouble, dir.at(replicaFile)+" is that of ") {
		out = append(out, twins(dir, twin+" too"))
	}
	return out
}

// asksFor is what the record says while this replica asks so.
func asksFor(q *replicaRequest, secret *replicaSecret) (string, error) {
	csr, err := x509.ParseCertificateRequest(q.CSR)
	if err != nil {
		return "", err
	}
	what := "ask " + q.Root + " " + keyHash(csr)
	if secret != nil {
		what += fmt.Sprintf(" %s %x", secret.id, secret.key.Public())
	}
	return what, nil
}

// hasAll is what the record says while this replica has these intermediates.
func (m *membership) hasAll(certificates []*x509.Certificate) string {
	what := "have " + m.name
	for _, c := range certificates {
		what += " " + serialText(c)
	}
	return what
}
