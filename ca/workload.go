package ca

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// workloadTable has the index of workloads, by name.
const workloadTable = "workload"

// maxLeaves bounds the certificates of one workload that are remembered: each can be revoked until
// no connection is open that began with it. A workload that needs more is broken.
const maxLeaves = 128

// Workload is an entry of the index of workloads. A workload without an entry is as good as one
// that has one: the index lists workloads, knows their certificates for revocations, and detects
// keys that were replaced.
type Workload struct {
	// Name is "namespace/name".
	Name string `json:"-"`
	// Format is 1.
	Format int `json:"v"`
	// Identity is the SPIFFE ID of its latest certificate.
	Identity string `json:"identity"`
	// Group is the WorkloadGroup that it joined, "namespace/name"; empty: none, or not known.
	Group string `json:"group,omitempty"`
	// How it joined: "token" or "jwt"; "certificate" when the index was lost since.
	How string `json:"how"`
	// Key is the hash of the key of its latest certificate. Previous is the one before it, until
	// Key has been used: the answer with the latest certificate may have been lost.
	Key      string `json:"key"`
	Previous string `json:"previous,omitempty"`
	// Leaves are its certificates, oldest first: also ended ones, while connections that began with
	// them may be open.
	Leaves []Leaf `json:"leaves"`
	// Bundle is the ID of the bundle that it is known to have. Offered is the latest one that it
	// was sent: it has that when it uses the key whose certificate came with it.
	Bundle  string `json:"bundle,omitempty"`
	Offered string `json:"offered,omitempty"`
	// Joined is when it proved itself otherwise than by a certificate, and From the address where
	// from. Renewed is when it got its latest certificate.
	Joined  time.Time `json:"joined"`
	From    string    `json:"from,omitempty"`
	Renewed time.Time `json:"renewed"`
	// Replaced is when a join token put its key in the place of another machine's; zero: never.
	Replaced time.Time `json:"replaced,omitzero"`
	// Revoked says that it is revoked by its name. Workloads sets it.
	Revoked bool `json:"-"`
}

// Leaf is a certificate that was issued.
type Leaf struct {
	// Serial is its serial number in hexadecimal digits.
	Serial string `json:"serial"`
	// SHA256 is the hash of its DER in hexadecimal digits.
	SHA256   string    `json:"sha256"`
	NotAfter time.Time `json:"notAfter"`
	// Root is the RootID of the root that it leads to.
	Root string `json:"root,omitempty"`
	// Revoked says that it is revoked by its serial number. Workloads sets it.
	Revoked bool `json:"-"`
}

// decodeWorkload reads a workload's record.
func decodeWorkload(name string, value []byte) (Workload, error) {
	var w Workload
	if err := decodeRecord(value, &w); err != nil {
		return Workload{}, fmt.Errorf("workload %s: %w", name, err)
	}
	if _, err := spiffe.Parse(w.Identity); err != nil {
		return Workload{}, fmt.Errorf("workload %s: its record names no identity: %w", name, err)
	}
	w.Name = name
	return w, nil
}

// workloadWrite replaces a workload that was read at a version.
func workloadWrite(w Workload, version string) (record.Write, error) {
	value, err := json.Marshal(w)
	return record.Write{Key: record.Key{Table: workloadTable, Name: w.Name}, Value: value, Version: version}, err
}

// isHash says that a text is a SHA-256 in hexadecimal digits.
func isHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// leafOf is what the index has of a certificate.
func leafOf(c *x509.Certificate, root string) Leaf {
	return Leaf{Serial: serialText(c), SHA256: Fingerprint(c), NotAfter: c.NotAfter, Root: root}
}

// Expires is when its last certificate ends; zero when it has none.
func (w *Workload) Expires() time.Time {
	var last time.Time
	for _, l := range w.Leaves {
		last = later(last, l.NotAfter)
	}
	return last
}

// prune forgets certificates that ended longer ago than outlive, but for the one that ends last.
func (w *Workload) prune(now time.Time, outlive time.Duration) {
	var last Leaf
	for _, l := range w.Leaves {
		if l.NotAfter.After(last.NotAfter) {
			last = l
		}
	}
	w.Leaves = slices.DeleteFunc(slices.Clone(w.Leaves), func(l Leaf) bool {
		return !l.NotAfter.Add(outlive).After(now) && l.Serial != last.Serial
	})
}

// join is the workload after a new proof. The keys from before renew no more, and their
// certificates stay known, for they can be revoked.
func (w Workload) join(c *issued) Workload {
	if w.Key != c.key.String() {
		w.Bundle = ""
		if w.Key != "" && c.proof.How == byToken {
			w.Replaced = c.now
		}
	}
	w.Format, w.Identity, w.Group, w.How = 1, c.proof.ID.String(), c.proof.Group, c.proof.How
	w.Key, w.Previous, w.Joined, w.From = c.key.String(), "", c.now, c.proof.from.String()
	return w
}

// renew is the workload after a renewal with the certificate of a key.
func (w Workload) renew(c *issued, known bool) Workload {
	with, key := KeyHashOf(c.proof.Leaf).String(), c.key.String()
	w.Format, w.Identity = 1, c.proof.ID.String() // of another trust domain, when the mesh got a new name
	if !known {
		w.How, w.Joined = byCertificate, c.now
	}
	if w.Key == with { // it has what came with that key
		w.Bundle = w.Offered
	}
	w.Previous, w.Key = with, key
	return w
}

// holds says that a key is the workload's latest one, or the one before it.
func (w *Workload) holds(key KeyHash) bool {
	k := key.String()
	return w.Key == k || w.Previous == k
}

// accountSign is in the name of a workload between a service account and what tells its machines
// apart. No workload that names itself has it.
const accountSign = "~"

// keyNameSize is how many bytes of a key's hash are in the name of a workload.
const keyNameSize = 8

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

// indexName is the name by which the index has the workload of a certificate. One without a name is
// told apart by its key.
func indexName(leaf *x509.Certificate, id spiffe.ID) string {
	if name := extensionName(leaf); name != "" {
		return name
	}
	return keyName(id, KeyHashOf(leaf))
}

// keyName is the name of a workload that only its key tells from others of its service account.
func keyName(id spiffe.ID, key KeyHash) string {
	return id.Namespace + "/" + id.ServiceAccount + accountSign + hex.EncodeToString(key[:keyNameSize])
}

// keyNamedAccount is the service account, "namespace/name", of a workload that keyName named.
func keyNamedAccount(workload string) (account string, ok bool) {
	account, suffix, _ := strings.Cut(workload, accountSign)
	key, err := hex.DecodeString(suffix)
	return account, err == nil && len(key) == keyNameSize
}

// workloadNamed are the extensions of a certificate that names a workload.
func workloadNamed(workload string) ([]pkix.Extension, error) {
	if workload == "" {
		return nil, nil
	}
	value, err := asn1.Marshal(workload)
	return []pkix.Extension{{Id: workloadExtension(), Value: value}}, err
}
