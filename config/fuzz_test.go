package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// seeds are all files of testdata.
func seeds(f *testing.F) {
	f.Helper()
	good, err := filepath.Glob("testdata/good/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range good {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, false)
	}
	archive, err := txtar.ParseFile("testdata/problems/file.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range archive.Files {
		f.Add(c.Data, filepath.Ext(c.Name) == ".json")
	}
	for _, kind := range []Kind{VirtualService, DestinationRule, Gateway, ServiceEntry, WorkloadEntry, Sidecar,
		PeerAuthentication, AuthorizationPolicy, RequestAuthentication, EnvoyFilter} {
		info, ok := Info(kind)
		if !ok {
			f.Fatalf("no kind %s", kind)
		}
		archive, err := txtar.ParseFile("testdata/problems/" + string(kind) + ".txtar")
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range archive.Files {
			f.Add([]byte("apiVersion: "+info.APIVersion()+"\nkind: "+string(kind)+"\nmetadata: {name: web}\nspec:\n"+string(c.Data)), false)
		}
	}
}

// fileName chooses the format.
func fileName(isJSON bool) string {
	if isJSON {
		return "a.json"
	}
	return "a.yaml"
}

// Whatever stands in a file: no panic; the limits hold; what is refused has a reason; what is
// accepted has passed Validate and can be encoded.
func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		r := Parse(fileName(isJSON), data)
		if len(r.Problems) > MaxProblems+1 {
			t.Errorf("%d problems", len(r.Problems))
		}
		refused := slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Severity == feed.Error })
		if r.Malformed && !r.Unread {
			t.Error("malformed, but not unread")
		}
		if refused != (r.Unread || len(r.Broken) > 0) {
			t.Errorf("an error: %v, but unread %v and broken %v", refused, r.Unread, r.Broken)
		}
		for _, p := range r.Problems {
			if p.Text == "" || p.File == "" || !utf8.ValidString(p.String()) {
				t.Errorf("incomplete problem %+v", p)
			}
		}
		accepted := map[Key]bool{}
		for _, o := range r.Objects {
			if accepted[o.Key] {
				t.Errorf("%s is accepted twice", o.Key)
			}
			accepted[o.Key] = true
			for _, p := range Validate(o) {
				if p.Severity == feed.Error {
					t.Errorf("accepted, and not valid: %s", p)
				}
			}
			if _, err := (proto.MarshalOptions{}).Marshal(o.Spec); err != nil {
				t.Errorf("%s cannot be marshalled: %v", o.Key, err)
			}
		}
	})
}

// What was read is the same after Encode and Parse.
func FuzzEncode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		objects := Parse(fileName(isJSON), data).Objects
		text, err := Encode(objects)
		if err != nil {
			t.Fatal(err)
		}
		r := Parse("encoded.yaml", text)
		for _, p := range r.Problems {
			if p.Severity == feed.Error {
				t.Fatalf("%s in\n%s", p, text)
			}
		}
		hashes := func(objects []*Object) map[Key]uint64 {
			m := map[Key]uint64{}
			for _, o := range objects {
				m[o.Key] = o.Hash
			}
			return m
		}
		if diff := cmp.Diff(hashes(objects), hashes(r.Objects)); diff != "" {
			t.Errorf("changed (-before +after):\n%s\n%s", diff, text)
		}
	})
}
