package ca

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"strings"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// accountSign is in the name of a workload between a service account and what tells its machines
// apart. No workload that names itself has it.
const accountSign = "~"

// keyNameSize is how many bytes of a key's hash are in the name of a workload.
const keyNameSize = 8

// workloadExtension is the ID of the certificate extension that names a workload, "namespace/name".
// It is private to Ashore: below 2.25 anybody may choose a number.
func workloadExtension() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 25, 1634233938} }

// WorkloadName returns the workload that a certificate was issued to, "namespace/name". Trust it for
// a verified certificate only. It is empty for certificates of other authorities, and for workloads that
// are named by their first key: a holder of the service account's token can create such names.
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
