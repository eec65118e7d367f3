package config

import "testing"

// A value that was most likely meant for a workload and matches none is reported.
func TestDoubtPrincipal(t *testing.T) {
	t.Parallel()
	for value, doubtful := range map[string]bool{
		"cluster.local/ns/shop/sa/web":  false,
		"*":                             false,
		"*/ns/shop/sa/web":              false,
		"cluster.local/ns/shop/*":       false,
		"partner.example/client":        false,
		"partner.example/path/client":   false,
		"web":                           true,
		"shop/web":                      true,
		"ns/shop/sa/web":                true,
		"cluster.local/ns/shop/web":     true,
		"cluster.local/ns/shop/sa/web/": true,
	} {
		if got := suspectPrincipal(value); (got != "") != doubtful {
			t.Errorf("%s: got %q, want it reported: %v", value, got, doubtful)
		}
	}
}

// A star that is an ordinary character is reported; one that stands for anything is not.
func TestDoubtPath(t *testing.T) {
	t.Parallel()
	for value, doubtful := range map[string]bool{
		"/dex/**": true, "/a*b": true, "/*/b*": true, "*/b*": true, "**": true,
		"*": false, "/dex/*": false, "*/dex": false, "/dex": false, "/dex/{**}": false, "/{*}/dex": false,
	} {
		if got := suspectPath(value); (got != "") != doubtful {
			t.Errorf("%s: got %q, want it reported: %v", value, got, doubtful)
		}
	}
}
