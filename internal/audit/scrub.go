package audit

import "regexp"

// scrubber hides secrets.
type scrubber struct{ token, key *regexp.Regexp }

func newScrubber() scrubber {
	return scrubber{
		// A join token or a replica's: its ID stays. A JWT, and what follows "Bearer ", unless it is
		// shorter than a secret: "invalid bearer token".
		token: regexp.MustCompile(`(ashore-(?:join|replica)\.[-\w+/=]*\.|eyJ)[-\w.+/=]+|([Bb]earer )[-\w.+/=]{6,}`),
		key:   regexp.MustCompile(`(?s)-----BEGIN[^\n]*PRIVATE KEY-----.*`),
	}
}

func (s scrubber) scrub(text string) string {
	return s.key.ReplaceAllString(s.token.ReplaceAllString(text, "${1}${2}(secret)"), "(private key)")
}
