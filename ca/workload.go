package ca

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// maxLeaves bounds the certificates of one workload in the index. Each can be revoked until no
// connection is open that began with it. A workload that needs more is broken.
const maxLeaves = 128

// Workload is an entry of the index of workloads. The index lists workloads, has their certificates
// for revocations, and detects keys that were replaced. A workload needs no entry.
type Workload struct {
	// Name is "namespace/name".
	Name string `json:"name"`
	// Identity is the SPIFFE ID of its latest certificate.
	Identity string `json:"identity"`
	// Group is the WorkloadGroup that it joined, "namespace/name". Empty: none, or unknown.
	Group string `json:"group,omitempty"`
	// Key is the hash of the key of its latest certificate. Previous is the one before, which may be
	// used until Key has been used: the answer with the latest certificate may have been lost.
	Key      string `json:"key"`
	Previous string `json:"previous,omitempty"`
	// Leaves are its certificates, oldest first. Expired ones stay while connections that began with
	// them may be open.
	Leaves []admin.Leaf `json:"leaves"`
	// Joined is when it proved itself by a token or a JWT, and From its address then. Renewed is when
	// it got its latest certificate.
	Joined  time.Time `json:"joined"`
	From    string    `json:"from,omitempty"`
	Renewed time.Time `json:"renewed"`
	// Replaced is when another machine joined under its name; zero: never.
	Replaced time.Time `json:"replaced,omitzero"`
	// Revoked means that it is revoked by its name. Workloads sets it.
	Revoked bool `json:"-"`
}

// leafOf is the entry of a certificate.
func leafOf(c *x509.Certificate, root string) admin.Leaf {
	return admin.Leaf{Serial: serialText(c), SHA256: Fingerprint(c), NotAfter: c.NotAfter, Root: root}
}

// Expires is when its last certificate expires; zero if it has none.
func (w *Workload) Expires() time.Time {
	var last time.Time
	for _, l := range w.Leaves {
		last = later(last, l.NotAfter)
	}
	return last
}

// prune removes certificates that expired longer ago than outlive. The latest stays: the workload may
// have to renew with it again.
func (w *Workload) prune(now time.Time, outlive time.Duration) {
	n := max(len(w.Leaves)-1, 0)
	expired := func(l admin.Leaf) bool { return !l.NotAfter.Add(outlive).After(now) }
	w.Leaves = append(slices.DeleteFunc(slices.Clone(w.Leaves[:n]), expired), w.Leaves[n:]...)
}

// join is the workload after it proved itself by a token or a JWT. Its former keys cannot renew any
// more. Their certificates stay in the index, so that they can be revoked.
func (w Workload) join(c *issuance) Workload {
	if w.Key != c.ask.KeyHash && w.Key != "" && c.proof.How == byToken {
		w.Replaced = c.now
	}
	w.Group, w.Joined, w.From = c.proof.Group, c.now, c.proof.from.String()
	w.Previous, w.Key = "", c.ask.KeyHash
	return w
}

// renew is the workload after a renewal with the certificate of a key.
func (w Workload) renew(c *issuance) Workload {
	if w.Key == "" {
		w.Joined = c.now
		w.Group = c.proof.Group // of an external signer's certificates each key is an entry
	}
	w.Previous, w.Key = keyHash(c.proof.Leaf), c.ask.KeyHash
	return w
}

// holds reports whether a key, which is not empty, is the workload's latest one, or the one before.
func (w *Workload) holds(key string) bool { return key != "" && (w.Key == key || w.Previous == key) }

// accountSign separates a service account from what distinguishes its workloads in their names. No
// workload that names itself can use it.
const accountSign = "~"

// keyNameSize is how many digits of a key's hash are in the name of a workload.
const keyNameSize = 16

// workloadExtension is the ID of the certificate extension that names a workload, "namespace/name".
// It is private to Ashore: below 2.25 anybody may choose a number.
func workloadExtension() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 25, 1634233938} }

// WorkloadName returns the workload that a certificate was issued to, "namespace/name". Trust it
// for a verified certificate only. It is empty for certificates of other authorities, and for
// workloads that are named by their first key: a holder of the service account's token can create
// such names.
func WorkloadName(leaf *x509.Certificate) string {
	name := extensionName(leaf)
	if _, ok := keyNamedAccount(name); ok {
		return ""
	}
	return name
}

// extensionName is the name in a certificate's extension, or empty.
func extensionName(leaf *x509.Certificate) string {
	for _, e := range leaf.Extensions {
		var name string
		if e.Id.Equal(workloadExtension()) {
			if rest, err := asn1.Unmarshal(e.Value, &name); err == nil && len(rest) == 0 {
				return name
			}
		}
	}
	return ""
}

// indexName is the name by which the index has the workload of a certificate.
func indexName(leaf *x509.Certificate, id spiffe.ID) string {
	if name := extensionName(leaf); name != "" {
		return name
	}
	return keyName(id, keyHash(leaf))
}

// keyName is the name of a workload that only its key distinguishes from others of its service
// account.
func keyName(id spiffe.ID, key string) string {
	return id.Namespace + "/" + id.ServiceAccount + accountSign + key[:keyNameSize]
}

// keyNamedAccount is the service account, "namespace/name", of a workload that keyName named.
func keyNamedAccount(workload string) (account string, ok bool) {
	account, suffix, _ := strings.Cut(workload, accountSign)
	_, err := hex.DecodeString(suffix)
	return account, err == nil && len(suffix) == keyNameSize
}

// Workloads lists the index by name, with what is revoked. If records cannot be read it returns an
// error and the other workloads.
func (l *Ledger) Workloads(ctx context.Context) ([]Workload, error) {
	out, err := l.workloads.list(ctx)
	revoked := l.Revocations()
	for i, w := range out {
		out[i].Revoked = revoked.Has(w.Name)
	}
	return out, err
}

// Dependents are the workloads that a rotation of the root waits for: they are not revoked, and can
// renew. They are sorted by name. A record that cannot be read is an error, because every workload
// counts.
func (l *Ledger) Dependents(ctx context.Context) (out []Dependent, err error) {
	workloads, err := l.Workloads(ctx)
	if err != nil {
		return nil, err
	}
	now, revoked := l.config.Now(), l.Revocations()
	for _, w := range workloads {
		n := len(w.Leaves)
		if n > 1 && now.Sub(w.Renewed) < settling {
			n-- // the latest may not be in use yet
		}
		if n == 0 || w.Revoked || revoked.identity[w.Identity] {
			continue
		}
		leaf := w.Leaves[n-1]
		if until := leaf.NotAfter.Add(l.config.Grace); until.After(now) {
			out = append(out, Dependent{Workload: w.Name, RootID: leaf.Root, Until: until})
		}
	}
	return out, nil
}
