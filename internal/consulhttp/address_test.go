package consulhttp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSplitAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://consul":          "http consul:8500",
		"https://consul":         "https consul:8501",
		"https://[::1]:1":        "https [::1]:1",
		"http://a:1/":            "http a:1",
		"unix:///run/c.sock":     "unix /run/c.sock",
		"consul:8500":            `"consul:8500": want http://HOST:PORT`,
		"http://a/b":             "want http://HOST:PORT",
		"http://a:850000":        `"850000" is not a port of "http://a:850000"`,
		"https://a:0":            `"0" is not a port of`,
		"http://a:":              `"" is not a port of "http://a:"`,
		"unix://run/c.sock":      "want unix:// and an absolute path",
		"http://me:secret@a:1":   `"http://a:1": want only a host and a port`,
		"http://a:1?token=s3cre": `"http://a:1": want only a host and a port`,
		"\x00":                   "want http://HOST:PORT",
	} {
		scheme, rest, err := SplitAddress(in)
		got := scheme + " " + rest
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || strings.Contains(got, "s3cre") || strings.Contains(got, "secret") {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestExposure(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	for address, want := range map[string]string{
		DefaultAddress: "", "http://localhost": "", "http://[::1]:8500": "", "http://127.8.0.1:1": "",
		"unix:///run/consul.sock": "", "https://10.0.0.1": "", "https://consul": "", "nonsense": "",
		"http://10.0.0.1": "address", "http://consul:8500": "address", "http://localhost.example": "address",
		"http://[2001:db8::1]": "address",
	} {
		for mode, wantToken := range map[os.FileMode]string{0o600: "", 0o644: "tokenFile (mode 0644)"} {
			if err := os.WriteFile(file, nil, mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
			var got []string
			Exposure(address, file, func(option, format string, args ...any) {
				if option == "tokenFile" {
					_, mode, _ := strings.Cut(fmt.Sprintf(format, args...), "(")
					option += " (" + mode[:len("mode 0644)")]
				}
				got = append(got, option)
			})
			if want := strings.Fields(want + " " + wantToken); strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("%s, mode %o: got warnings about %q, want %q", address, mode, got, want)
			}
		}
	}
}
