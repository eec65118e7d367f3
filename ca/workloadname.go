package ca

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"strings"
)

// workloadExtension is the ID of the certificate extension that names a workload, "namespace/name".
// It is private to Ashore: below 2.25 anybody may choose a number.
func workloadExtension() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 25, 1634233938} }

// WorkloadName returns the workload that a certificate was issued to, "namespace/name". Every
// certificate of a workload has the same name, so it tells a workload apart whatever key it uses.
// Believe it of a verified certificate only. It is empty where the authority cannot tell workloads
// of one service account apart but by their keys, and for certificates of other authorities.
func WorkloadName(leaf *x509.Certificate) string {
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

// stableName is the name of a workload, or empty when the name was made of its first key: it would
// have another one with another key. A pod called like that is without a name too.
func stableName(workload string) string {
	_, suffix, _ := strings.Cut(workload, accountSign)
	if key, err := hex.DecodeString(suffix); err == nil && len(key) == keyNameSize {
		return ""
	}
	return workload
}

// workloadNamed are the extensions of a certificate that names a workload.
func workloadNamed(workload string) ([]pkix.Extension, error) {
	if workload == "" {
		return nil, nil
	}
	value, err := asn1.Marshal(workload)
	return []pkix.Extension{{Id: workloadExtension(), Value: value}}, err
}
