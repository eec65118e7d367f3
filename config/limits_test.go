package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Every limit is answered with a problem, and what is below it is read.
func TestLimits(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web}\nspec:\n"
	repeated := head + "  hosts: [web]\n  http:\n  - &r {match: [" + strings.Repeat("{},", 500) + "]}\n" +
		strings.Repeat("  - *r\n", 1000)
	for _, c := range []struct {
		name, file, text, want string
		unread                 bool
	}{
		{"size", "a.yaml", strings.Repeat("#", MaxFileSize+1), "more than 4194304", true},
		{"nesting", "a.yaml", "a: " + strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2), "nest deeper than 64", true},
		{"deep YAML", "a.yaml", strings.Repeat("[", 100_000), "not valid YAML", true},
		{"aliases", "a.yaml", repeated, "aliases (*name) stand for more than", true},
		{"documents", "a.yaml", strings.Repeat("---\n{}\n", MaxDocuments+1), "more than 50000 documents: split", true},
		{"documents in JSON", "a.json", "{}\n{}", "write --- before it", true},
		{"items", "a.yaml", head + "  http: [" + strings.Repeat("{},", MaxItems+1) + "]\n", "the list has 20001 items", false},
		{"problems", "a.yaml", strings.Repeat("---\n{}\n", MaxProblems+10), "more than 200 problems", true},
		{"not UTF-8", "a.yaml", "a: b\nc: \xff\n", "the text is not UTF-8", true},
		{"UTF-16", "a.yaml", "\xfe\xff\x00a", "the text is not UTF-8", true},
		{"half a character in JSON", "a.json", `{"kind": "\ud800"}`, "invalid Unicode", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := Parse(c.file, []byte(c.text))
			all := strings.Join(texts(r), "\n")
			if !strings.Contains(all, c.want) {
				t.Fatalf("problems:\n%.2000s\nwant %q", all, c.want)
			}
			if r.Unread != c.unread {
				t.Errorf("unread: got %v, want %v", r.Unread, c.unread)
			}
			if len(r.Objects) != 0 {
				t.Errorf("objects: got %d, want none", len(r.Objects))
			}
			if len(r.Problems) > MaxProblems+1 {
				t.Errorf("problems: got %d, want at most %d and one", len(r.Problems), MaxProblems)
			}
		})
	}
}

// Warnings alone are none of them an error, however many there are. One that is one shows, and
// stands with its line.
func TestManyWarnings(t *testing.T) {
	t.Parallel()
	const n = MaxProblems + 50
	var text strings.Builder
	gateway := func(i, port int) {
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g%03d, namespace: shop}\nspec:\n  servers:\n  - port: {number: %d, name: http, protocol: HTTP}\n    hosts: [a.example]\n", i, port)
	}
	for i := range n {
		gateway(i, 80)
	}
	r := Parse("a.yaml", []byte(text.String()))
	if len(r.Objects) != n || len(r.Problems) != MaxProblems+1 || hasError(r.Problems) ||
		!strings.Contains(r.Problems[MaxProblems].Text, "more than 200 problems") {
		t.Fatalf("got %d objects, %d problems, the last %v; want warnings that there are more of", len(r.Objects),
			len(r.Problems), r.Problems[len(r.Problems)-1])
	}
	gateway(n, 80000)
	r = Parse("a.yaml", []byte(text.String()))
	if len(r.Objects) != n || len(r.Broken) != 1 || len(r.Problems) != MaxProblems+1 {
		t.Fatalf("got %d objects, %v broken, %d problems", len(r.Objects), r.Broken, len(r.Problems))
	}
	all := strings.Join(texts(r), "\n")
	if want := fmt.Sprintf("a.yaml:%d: Gateway shop/g%03d spec.servers[0].port", n*8+7, n); !strings.Contains(all,
		want) || !hasError(r.Problems[MaxProblems-1:]) {
		t.Errorf("the error %q is not told:\n%.3000s", want, all)
	}
}

func hasError(list []Problem) bool {
	return slices.ContainsFunc(list, func(p Problem) bool { return p.Severity == feed.Error })
}

// A byte order mark, Windows' line ends and a document of JSON within YAML are read.
func TestParseTolerates(t *testing.T) {
	t.Parallel()
	want := mustParse(t, "a.yaml", web)[0].Hash
	for name, text := range map[string]string{
		"byte order mark": "\ufeff" + web,
		"carriage return": strings.ReplaceAll(web, "\n", "\r\n"),
		"markers":         "%YAML 1.1\n---\n" + web + "...\n---\n# the end\n",
		"no last newline": strings.TrimSpace(web),
	} {
		if got := mustParse(t, "a.yaml", text); len(got) != 1 || got[0].Hash != want {
			t.Errorf("%s: not the same object", name)
		}
	}
}
