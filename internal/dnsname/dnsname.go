package dnsname

import "strings"

const (
	maxName  = 253
	maxLabel = 63
)

// Valid reports whether a text is a DNS name in lower case, with at most 253 bytes and no dot at
// the end. Source: RFC 1035 section 2.3.1 and RFC 1123 section 2.1.
func Valid(name string) bool {
	if len(name) > maxName {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if !ValidLabel(label) {
			return false
		}
	}
	return true
}

// ValidLabel reports whether a text is a label of such a name: 1 to 63 lower-case letters, digits
// and '-', which is neither first nor last.
func ValidLabel(label string) bool {
	if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
