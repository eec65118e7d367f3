package machines

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// command is a block of commands of docs/install.md, whose first line says where it is run.
type command struct{ where, script string }

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// documented are the blocks of a section of docs/install.md, in order. Every block says where to
// run it, "# on NAME", or "# not tested".
func documented(t *testing.T, section string) []command {
	t.Helper()
	text, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("docs/install.md has no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var out []command
	for _, block := range shellBlock.FindAllStringSubmatch(rest, -1) {
		first, _, _ := strings.Cut(block[1], "\n")
		where, ok := strings.CutPrefix(first, "# on ")
		switch {
		case ok:
			out = append(out, command{where, block[1]})
		case !strings.HasPrefix(first, "# not tested"):
			t.Errorf("a block of %q does not say where it is run: %s", section, first)
		}
	}
	return out
}
