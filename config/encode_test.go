package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	networking "istio.io/api/networking/v1alpha3"
)

// same compares objects without where they were read.
func same(t *testing.T, want, got []*Object) {
	t.Helper()
	ignore := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Origin" }, cmp.Ignore())
	if diff := cmp.Diff(want, got, protocmp.Transform(), ignore); diff != "" {
		t.Errorf("after Encode and Parse (-want +got):\n%s", diff)
	}
}

// What Encode writes, Parse reads as the same objects with the same hashes.
func TestEncodeRoundTrip(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/good/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := mustParse(t, path, string(data))
			text, err := Encode(want)
			if err != nil {
				t.Fatal(err)
			}
			same(t, want, mustParse(t, "encoded.yaml", string(text)))
			again, err := Encode(want)
			if err != nil || string(again) != string(text) {
				t.Errorf("the same objects give another text (%v)", err)
			}
		})
	}
}

// Texts that look like something else, or that YAML treats in a way of its own, come back as they
// were.
func TestEncodeTexts(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", " ", "true", "yes", "null", "~", "1.10", "0x1", "1e3", ".inf", "2024-05-06", "<<", "=", "- a", "a: b", "#", "'", `"`, `\`, "---", "...", "--- a",
		"a\nb", "a\n", "\na", "a\r\nb", "\t", "a\tb", " a ", "a\u2028b", "\u0085", "\ufeff", "\U0001F600", "%", "&a", "*a", "!a", "{", "[", "|", ">", "@", "`", "\x00", "\x7f",
	} {
		o := &Object{
			Key: Key{VirtualService, "shop", "web"}, Created: time.Date(2024, 5, 6, 7, 8, 9, 123, time.UTC),
			Annotations: map[string]string{"note": s},
			Spec: &networking.VirtualService{Hosts: []string{"web"},
				Http: []*networking.HTTPRoute{{DirectResponse: &networking.HTTPDirectResponse{
					Status: 200, Body: &networking.HTTPBody{Specifier: &networking.HTTPBody_String_{String_: s}}}}}},
		}
		o.Hash = HashOf(o)
		text, err := Encode([]*Object{o})
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		same(t, []*Object{o}, mustParse(t, "a.yaml", string(text)))
	}
}

func TestEncodeText(t *testing.T) {
	t.Parallel()
	text, err := Encode(mustParse(t, "a.yaml", web+"---\n"+strings.Replace(web, "name: web", "name: two", 1)))
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: web
  namespace: shop
  creationTimestamp: "2024-05-06T07:08:09Z"
  labels:
    team: blue
spec:
  hosts:
    - web.shop.example
  ports:
    - number: 80
      protocol: HTTP
      name: http
      targetPort: 8080
  resolution: STATIC
  endpoints:
    - address: 10.0.0.1
      labels:
        version: v1
---
`
	if got := string(text); !strings.HasPrefix(got, want) {
		t.Errorf("got:\n%s\nwant it to begin with:\n%s", got, want)
	}
}

func TestEncodeErrors(t *testing.T) {
	t.Parallel()
	_, err := Encode([]*Object{{Key: Key{"Deployment", "a", "b"}}})
	if err == nil || !strings.Contains(err.Error(), "write Deployment a/b: unknown kind") {
		t.Errorf("got %v, want an error that names the object", err)
	}
	if text, err := Encode(nil); err != nil || len(Parse("a", text).Problems) != 0 {
		t.Errorf("no objects: got %q, %v", text, err)
	}
}
