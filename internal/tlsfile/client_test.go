package tlsfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/testcert"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	cert, key := testcert.Write(t, t.TempDir())
	_, other := testcert.Write(t, t.TempDir())
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		files Client
		want  string // part of the error
	}{
		"none":               {Client{}, ""},
		"all":                {Client{cert, cert, key}, ""},
		"no authorities":     {Client{CAFile: "/none"}, "caFile: open /none"},
		"not PEM":            {Client{CAFile: text}, "has no certificate"},
		"no certificate":     {Client{CertFile: "/none", KeyFile: key}, "certFile: open /none"},
		"no key":             {Client{CertFile: cert, KeyFile: "/none"}, "keyFile: open /none"},
		"the key of another": {Client{CertFile: cert, KeyFile: other}, "certFile: " + cert},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.files.Load()
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				return
			}
			if err != nil || (got.RootCAs != nil) != (tc.files.CAFile != "") ||
				(len(got.Certificates) == 1) != (tc.files.CertFile != "") {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
