package config

import (
	"fmt"
	"strings"
	"testing"
)

// Problems of a file that holds no object of the API quote nothing of it: it may be a key, or
// /etc/shadow.
func TestProblemsQuoteNoOtherFile(t *testing.T) {
	t.Parallel()
	const secret = "s3cretHunter2"
	for name, text := range map[string]string{
		"shadow":               "root:" + secret + ":19000:0:99999:7:::\ndaemon:" + secret + ":19000:0:99999:7:::\n",
		"the same line twice":  secret + ":7:::\n" + secret + ":7:::\n",
		"key":                  "-----BEGIN PRIVATE KEY-----\n" + secret + "\n-----END PRIVATE KEY-----\n",
		"text":                 secret + "\n",
		"list":                 "- " + secret + "\n",
		"names":                secret + ": " + secret + "\n",
		"names, quoted":        "{\"" + secret + "\": \"" + secret + "\"}\n",
		"merge":                "<<: " + secret + "\n",
		"merge of a list":      "<<: [" + secret + "]\n",
		"key of a list":        "? [" + secret + "]\n: " + secret + "\n",
		"alias":                "*" + secret + "\n",
		"tag":                  "!" + secret + " a\n",
		"directive":            "%" + secret + "\na\n",
		"quote without end":    "'" + secret + "\n",
		"anchor in itself":     "&" + secret + " [*" + secret + "]\n",
		"control character":    secret + "\x01\n",
		"kind that is no name": "kind: " + secret + "/\n",
		"items":                "kind: List\napiVersion: v1\nitems: [" + secret + ", {" + secret + ": 1}]\n",
	} {
		for _, file := range []string{"a.yaml", "a.json"} {
			t.Run(name+" "+file, func(t *testing.T) {
				t.Parallel()
				r := Parse(file, []byte(text))
				if len(r.Problems) == 0 {
					t.Errorf("no problem, and %d objects", len(r.Objects))
				}
				for _, p := range r.Problems {
					if got := fmt.Sprintf("%s %+v", p, p); strings.Contains(strings.ToLower(got),
						strings.ToLower(secret[:5])) {
						t.Errorf("it quotes the file: %s", got)
					}
				}
			})
		}
	}
}
