package filestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kindOf is an object with another kind in its place.
func kindOf(object, kind string) string {
	return strings.Replace(object, "kind: ServiceEntry", "kind: "+kind, 1)
}

// Whatever slip is in a file, what stood in it stays in use until the file is in order without it, over restarts too.
func TestSlipsTakeNothingAway(t *testing.T) {
	t.Parallel()
	a, b := entry("a", "10.0.0.1"), entry("b", "10.0.0.1")
	const both = "a=10.0.0.1 b=10.0.0.1"
	for name, c := range map[string]struct {
		before, after map[string]string
		problems      []string // each is a part of the one of its place
	}{
		"the line between two is lost": {map[string]string{"x.yaml": a + b}, map[string]string{"x.yaml": strings.Replace(a, "---\n", "", 1) + b}, []string{
			"\"apiVersion\" stands twice, in line 1 too: remove one of them, or, if another object begins here, write --- before it",
			"\"kind\" stands twice", "\"metadata\" stands twice", "\"spec\" stands twice"}},
		"the line between two is a comment": {map[string]string{"x.yaml": a + b}, map[string]string{"x.yaml": strings.Replace(a, "---", "# ---", 1) + b}, []string{
			": ServiceEntry default/a, ServiceEntry default/b", "\"kind\" stands twice", "\"metadata\" stands twice", "\"spec\" stands twice"}},
		"the second takes the name of the first": {map[string]string{"x.yaml": a + b}, map[string]string{"x.yaml": a + entry("a", "10.0.0.2")}, []string{
			"defined in this line and in line 1", "ServiceEntry default/b: it was taken away while this file has an error"}},
		"the first takes the name of the second": {map[string]string{"x.yaml": a + b}, map[string]string{"x.yaml": entry("b", "10.0.0.2") + b}, []string{
			"defined in this line and in line 1", "ServiceEntry default/a: it was taken away while this file has an error"}},
		"one takes a name of an earlier file": {map[string]string{"x.yaml": a, "y.yaml": b}, map[string]string{"y.yaml": entry("a", "10.0.0.2")}, []string{
			"ServiceEntry default/b: it was taken away while this file has an error", "it is defined in x.yaml:1 too"}},
		"one takes a name of a later file": {map[string]string{"x.yaml": a, "y.yaml": b}, map[string]string{"x.yaml": entry("b", "10.0.0.2")}, []string{
			"ServiceEntry default/a: it was taken away while this file has an error", "it is defined in y.yaml:1 too"}},
		"the kind is another one": {map[string]string{"x.yaml": a + b}, map[string]string{"x.yaml": a + kindOf(b, "Gateway")}, []string{
			"Gateway default/b", "Gateway default/b", "Gateway default/b", "Gateway default/b", "ServiceEntry default/b: it was taken away while this file has an error"}},
		"the kind is not supported": {map[string]string{"x.yaml": a + b}, map[string]string{"x.yaml": a + kindOf(b, "EnvoyFilter")}, []string{
			"EnvoyFilter", "EnvoyFilter", "EnvoyFilter", "EnvoyFilter", "EnvoyFilter", "ServiceEntry default/b: it was taken away while this file has an error"}},
		"moved with another kind": {map[string]string{"x.yaml": a, "y.yaml": b}, map[string]string{"x.yaml": "", "y.yaml": b + kindOf(a, "Gateway")}, []string{
			"Gateway default/a", "Gateway default/a", "Gateway default/a", "Gateway default/a", "ServiceEntry default/a: it was taken away while this file has an error"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, c.before)
			kept := &memory{kept: map[string][]byte{}}
			w := run(t, Config{Dir: dir, LastGood: kept})
			w.want(both)
			for file, text := range c.after {
				if text == "" {
					remove(t, dir, file)
				} else {
					put(t, dir, file, text)
				}
			}
			for range 3 {
				w.want(both, c.problems...)
				w.stop()
				w = run(t, Config{Dir: dir, LastGood: kept})
			}
			for file := range c.after {
				if err := os.Remove(filepath.Join(dir, file)); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			put(t, dir, "z.yaml", entry("d", "10.0.0.1"))
			if len(c.before) == 1 || len(c.after) == 2 {
				w.want("d=10.0.0.1")
			}
		})
	}
}

// What is plainly taken away goes at once: an object of a file that is in order, also for another one, and what stayed
// beside an error once that is mended.
func TestPlainRemovals(t *testing.T) {
	t.Parallel()
	a, b := entry("a", "10.0.0.1"), entry("b", "10.0.0.1")
	for name, c := range map[string]struct {
		edits []map[string]string
		state string
	}{
		"one of two":                 {[]map[string]string{{"x.yaml": a}}, "a=10.0.0.1 y=10.0.0.1"},
		"one for another":            {[]map[string]string{{"x.yaml": a + entry("c", "10.0.0.1")}}, "a=10.0.0.1 c=10.0.0.1 y=10.0.0.1"},
		"after its file was mended":  {[]map[string]string{{"x.yaml": broken("a")}, {"x.yaml": a}}, "a=10.0.0.1 y=10.0.0.1"},
		"after it gives a name back": {[]map[string]string{{"x.yaml": a + entry("y", "10.0.0.2")}, {"x.yaml": a}}, "a=10.0.0.1 y=10.0.0.1"},
		"after it is given a name":   {[]map[string]string{{"x.yaml": a + entry("y", "10.0.0.2")}, {"y.yaml": another}}, "a=10.0.0.1 y=10.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, map[string]string{"x.yaml": a + b, "y.yaml": entry("y", "10.0.0.1")})
			kept := &memory{kept: map[string][]byte{}}
			w := run(t, Config{Dir: dir, LastGood: kept})
			w.want("a=10.0.0.1 b=10.0.0.1 y=10.0.0.1")
			for i, edit := range c.edits {
				for file, text := range edit {
					put(t, dir, file, text)
				}
				if i+1 < len(c.edits) {
					w.next()
				}
			}
			w.want(c.state)
			w.stop()
			w = run(t, Config{Dir: dir, LastGood: kept})
			w.want(c.state)
		})
	}
}
