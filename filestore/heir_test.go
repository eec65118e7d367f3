package filestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is in use of a broken file stays in use under its new name: when it is renamed, moved with its folder, copied and
// removed, or moved while nobody looks; over restarts; whether its objects can be told or not.
func TestBrokenFileMoves(t *testing.T) {
	t.Parallel()
	rename := func(from, to string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	copied := func(t *testing.T, dir string) {
		text, err := os.ReadFile(filepath.Join(dir, "sub/a.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		put(t, dir, "z.yaml", string(text))
		if err := os.Remove(filepath.Join(dir, "sub/a.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	for what, content := range map[string]string{"refused": broken("a"), "not YAML": "a: [\n", "empty": ""} {
		for how, move := range map[string]func(t *testing.T, dir string){"renamed": rename("sub/a.yaml", "sub/z.yaml"), "moved": rename("sub/a.yaml", "z.yaml"), "with its folder": rename("sub", "bus"), "copied": copied} {
			for _, stopped := range []bool{false, true} {
				t.Run(what+" "+how+map[bool]string{true: " while stopped"}[stopped], func(t *testing.T) {
					t.Parallel()
					dir := folderOf(t, map[string]string{"sub/a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1")})
					kept := &memory{kept: map[string][]byte{}}
					w := run(t, Config{Dir: dir, LastGood: kept})
					put(t, dir, "sub/a.yaml", content)
					w.want("a=10.0.0.1 b=10.0.0.1", "sub/a.yaml")
					if stopped {
						w.stop()
					}
					move(t, dir)
					if stopped {
						w = run(t, Config{Dir: dir, LastGood: kept})
					}
					w.want("a=10.0.0.1 b=10.0.0.1", "stay")
					put(t, dir, "b.yaml", entry("b", "10.0.0.2"))
					w.want("a=10.0.0.1 b=10.0.0.2", "stay")
					for _, p := range w.problems() {
						if strings.Contains(p.Text, "defined in") {
							t.Errorf("a problem that is none: %v", p)
						}
					}
					w.stop()
					w = run(t, Config{Dir: dir, LastGood: kept})
					w.want("a=10.0.0.1 b=10.0.0.2", "stay")
					w.stop()
				})
			}
		}
	}
}
