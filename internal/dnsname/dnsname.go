package dnsname

import "strings"

const (
	maxName  = 253
	maxLabel = 63
)

// Valid says that a text is a name of DNS in small letters: labels between dots, 253 bytes at most,
// no dot at the end. Source: RFC 1035 section 2.3.1 and RFC 1123 section 2.1.
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

// ValidLabel says that a text can stand between two dots of such a name: small letters, digits and
// '-', which is neither first nor last, 1 to 63 bytes.
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
