package audit

import "regexp"

// scrubber hides secrets.
type scrubber struct{ token, key *regexp.Regexp }

func newScrubber() scrubber {
	return scrubber{
		// A join token or a replica's: its ID stays. A JWT, and what follows "Bearer ".
		token: regexp.MustCompile(`(ashore-(?:join|replica)\.[-\w+/=]*\.|[Bb]earer |eyJ)[-\w.+/=]+`),
		key:   regexp.MustCompile(`(?s)-----BEGIN[^\n]*PRIVATE KEY-----.*`),
	}
}

func (s scrubber) scrub(text string) string {
	return s.key.ReplaceAllString(s.token.ReplaceAllString(text, "${1}(secret)"), "(private key)")
}
