package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// secret is the content of the files that links lead to.
const secret = "s3cretHunter2"

// host is a ServiceEntry of a host at an address.
func host(name, address string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: %s}]
`, name, name, address)
}

// printed waits until a command of ashorectl prints all of words, and returns what it printed.
func printed(m *harness.Mesh, args []string, words ...string) string {
	m.T.Helper()
	var out string
	harness.Eventually(m.T, fmt.Sprintf("ashorectl %s prints %q", args, words), func() (err error) {
		if out, _, err = harness.Command("ashorectl", append([]string{"--socket", m.Socket()},
			args...)...); err != nil {
			return err
		}
		for _, w := range words {
			if !strings.Contains(out, w) {
				return fmt.Errorf("it printed %q", out)
			}
		}
		return nil
	})
	return out
}

// Links in the folder of configuration show nothing of what they lead to.
func TestSymlinksShowNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"shadow":   "root:" + secret + ":19000:0:99999:7:::\ndaemon:" + secret + ":19000:0:99999:7:::\n",
		"key":      "-----BEGIN PRIVATE KEY-----\n" + secret + "\n-----END PRIVATE KEY-----\n",
		"password": "password: " + secret + "\n" + secret + ": x\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const want = "a symbolic link leads out of the folder"
	folder := t.TempDir()
	m := harness.New(t, map[string]string{"web.yaml": host("web", "10.0.0.1")},
		harness.Sources(fmt.Sprintf("{name: linked, kind: files, folder: %s, required: false}", folder)))
	var names []string
	for _, name := range []string{"shadow", "key", "password"} {
		for _, end := range []string{".yaml", ".json"} {
			names = append(names, name+end)
			if err := os.Symlink(filepath.Join(dir, name), filepath.Join(folder, name+end)); err != nil {
				t.Fatal(err)
			}
		}
	}
	shown := printed(m, []string{"problems"}, append(names, want)...)
	shown += printed(m, []string{"problems", "-o", "json"}, names...)
	shown += printed(m, []string{"sources"}, "linked")
	validated, _, err := harness.Command("ashorectl", "validate", "-f", folder)
	if err != nil || !strings.Contains(validated, want) {
		t.Errorf("ashorectl validate: %v, %s", err, validated)
	}
	if shown += validated + m.Ashored.Log(); strings.Contains(strings.ToLower(shown), strings.ToLower(secret)) {
		t.Errorf("it shows what the links lead to:\n%s", shown)
	}
	m.Write("web.yaml", host("web", "10.0.0.2"))
	printed(m, []string{"get", "serviceentry", "web", "-n", "shop", "-o", "yaml"}, "10.0.0.2")
}

// A link to the root of the machine holds up nothing.
func TestSymlinkToRoot(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": host("web", "10.0.0.1")})
	if err := os.Symlink("/", filepath.Join(m.Files, "machine")); err != nil {
		t.Fatal(err)
	}
	printed(m, []string{"problems"}, "machine", "a symbolic link leads out of the folder, to /")
	m.Write("web.yaml", host("web", "10.0.0.2"))
	printed(m, []string{"get", "serviceentry", "web", "-n", "shop", "-o", "yaml"}, "10.0.0.2")
}
