package gen

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// What is refused stands for what servers take for the same; what is left out of that stands for
// nothing else than itself.
func TestMatchPath(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		v, path                     string
		written, refused, leftAlone truth
	}{
		{"/admin", "/admin?x", yes, yes, yes},
		{"/admin", "/x", no, no, no},
		{"/admin", "/%252f;a=%2f1%2F;b//%61DMIN", no, yes, no},
		{"/admin", "/%252f;a=%2f1%2F;b//%61dmi%256e;c%2fd", no, yes, no},
		{"/admin", "/;/x", no, no, no},
		{"/x", "/y%5c..", no, yes, no},
		{"/x", "/y%2f.;z/w", no, yes, no},
		{"/x", "/y%2f.z", no, no, no},
		{"/x", "/y%2f...", no, no, no},
		{"/x", "/y.%2f", no, no, no},
		{"/public/*", "/public/..%2fx", yes, yes, no},
		{"*.css", "/x.css", yes, yes, yes},
		{"*.css", "/x;.css", yes, yes, no},
		{"*.css", "/x%2ecss;y", no, yes, no},
		{"*", "/x;y", yes, yes, yes},
		{"/{*}/x", "/a/x", yes, yes, yes},
		{"/{*}/x", "/a%2fx", no, yes, no},
		{"/a/{**}/x", "/a//b/c;d/x", yes, yes, yes},
		{"/%61/b", "/a%2f/b", no, yes, no},
		{"/dex/**", "/dex/login", no, no, no},
		{"/dex/**", "/dex/*login", yes, yes, yes},
		{"/dex/**", "/dex//%2alogin", no, yes, no},
		{"/a*b", "/a*b", yes, yes, yes},
		{"/a*b", "/axb", no, no, no},
		{"*/b*", "/a/b*", yes, yes, yes},
		{"*/b*", "/a/bc", no, no, no},
	} {
		for as, want := range map[pathReading]truth{pathAsWritten: tc.written, pathRefused: tc.refused,
			pathExcepted: tc.leftAlone} {
			if got, ok := matchPath(tc.v, tc.path, as); !ok || got != want {
				t.Errorf("%s as %s, reading %d: got %d, %v, want %d", tc.path, tc.v, as, got, ok, want)
			}
		}
	}
}

// disguise writes a path in one of the ways that servers take for the same, or leads to it from
// elsewhere.
func disguise(r *rand.Rand, path string) string {
	one := func(values ...string) string { return values[r.IntN(len(values))] }
	slashes := []string{"/", "//", `/\`, "%2f", "%2F", "%5c", "%5C", "%252f", "%25255C", "/;/", ";a/", ";a=1%2f/",
		"/%3Bx/", "%253b;/;/"}
	var b strings.Builder
	if r.IntN(3) == 0 {
		b.WriteString(one("/x%2f..", "/x/%252e.", "/.;%2f.", "/x%5C%2e%2e;a"))
	}
	for i := range len(path) {
		switch c := path[i]; {
		case c == '/' && i == 0 && b.Len() == 0:
			b.WriteString("/" + one("", "/", ";/", ";a=1//"))
		case c == '/':
			b.WriteString(slashes[r.IntN(len(slashes))])
		case r.IntN(3) == 0:
			fmt.Fprintf(&b, "%%%s%s", strings.Repeat("25", r.IntN(3)),
				one(fmt.Sprintf("%02x", c), fmt.Sprintf("%02X", c)))
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + one("", "", ";", ";x=1", "?q")
}

// Disguises get around nothing that is refused, nor into what is left out of it.
func FuzzDisguisedPaths(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 5))
		for _, tc := range []struct{ v, path string }{
			{"/admin", "/admin"}, {"/admin/*", "/admin/x/y"}, {"/adm*", "/admin"}, {"*.key", "/x/y.key"}, {"*/key", "/x/key"}, {"/a/{*}/c", "/a/b/c"}, {"/a/{**}/d", "/a/b/c/d"}, {"/@me", "/@me"}, {"/a b", "/a b"},
		} {
			path := disguise(r, tc.path)
			if got, ok := matchPath(tc.v, path, pathRefused); !ok || got != yes {
				t.Errorf("%s gets around %s", path, tc.v)
			}
		}
		for _, v := range []string{"/public/*", "*.css"} {
			before, _, _ := strings.Cut(disguise(r, "/x"), "?")
			path := "/public" + before + disguise(r, "/a.css")
			if got, _ := matchPath(v, path, pathExcepted); got == yes && isUnclear(strings.Split(path, "?")[0]) {
				t.Errorf("%s gets into %s", path, v)
			}
		}
	})
}
