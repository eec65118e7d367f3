package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// What is applied reaches a real Envoy, what is rolled back leaves it, and who did it is on record.
func TestReachesEnvoy(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"seed.yaml": service("seed", "127.0.0.1")})
	one := harness.NewBackend(t, "one", fmt.Sprintf("%s:%d", b.IP(), port))
	two := harness.NewBackend(t, "two", fmt.Sprintf("%s:%d", b.IP(), port))
	client := b.Proxy(harness.Workload{Name: "client"}).Client(port)
	ip := func(x *harness.Backend) string { return strings.Split(x.Address, ":")[0] }
	call := harness.Request{Host: "web.test"}

	web := b.file("web.yaml", service("web", ip(one)))
	b.want(0, "apply --dry-run -f "+web, "+++ ServiceEntry default/web", "compared with revision 0: 1 created")
	b.want(0, "apply --at 0 -f "+web, "ServiceEntry default/web created", "revision 1: 1 created")
	client.Want(t, "the service that was applied", call, harness.From("one"))

	b.file("web.yaml", service("web", ip(two)))
	b.want(0, "apply --dry-run -f "+web, "-    - address: "+ip(one), "+    - address: "+ip(two))
	b.want(0, "apply -f "+web, "changed", "revision 2: 1 changed")
	b.want(0, "apply -f "+web, "unchanged", "nothing to change at revision 2")
	client.Want(t, "the service that was changed", call, harness.From("two"))

	b.want(0, "rollback serviceentry default/web 1", "revision 3: 1 changed")
	client.Want(t, "the service that was rolled back", call, harness.From("one"))
	b.want(0, "delete se default/web", "revision 4: 1 deleted")
	client.Want(t, "no service", call, func(a harness.Answer) error {
		if a.Seen.Backend != "" {
			return fmt.Errorf("%s answers still", a.Seen.Backend)
		}
		return nil
	})
	b.want(0, "rollback 3", "revision 5: 1 created")
	client.Want(t, "the service that was deleted", call, harness.From("one"))

	b.Ashored.Kill()
	b.Start()
	client.Want(t, "the service after a restart", call, harness.From("one"))
	b.want(0, "history", "rollback to 3", "rollback to 1", "created ServiceEntry default/web",
		"changed ServiceEntry default/web")
	b.want(0, "history se default/web --diff --limit 1", "revision 5", "+    - address: "+ip(one))
	harness.Eventually(t, "the store replaces what was saved before the restart", func() error {
		if out, _ := b.ctl("get", "se"); !strings.Contains(out, "revision 5") {
			return errors.New(out)
		}
		return nil
	})
	b.want(0, "get se", "seed.yaml:", "store ", "revision 5")
	for _, words := range [][]string{{"store revision 1", "apply", "created:ServiceEntry default/web"},
		{"store revision 4", "delete"}, {"store revision 5", "rollback to 3"}} {
		if e := b.Audited("config.write", words...); !strings.Contains(e.Actor, fmt.Sprintf("uid %d", os.Getuid())) {
			t.Errorf("the actor is %q, want this user", e.Actor)
		}
	}
}

// Folders with their subfolders, standard input, and what files of ashored's own define
// too.
func TestSources(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"web.yaml": service("web", "10.0.0.1")})
	b.file("all/a.yaml", service("a", "10.0.0.1"))
	b.file("all/sub/b.yaml", service("b", "10.0.0.1"))
	b.want(0, "apply -f "+b.dir+"/all/a.yaml", "default/a created", "revision 1: 1 created")
	b.want(0, "apply -f "+b.dir+"/all", "default/a unchanged", "default/b created")
	b.want(0, "apply -f "+b.file("w.yaml", service("web", "10.0.0.2")),
		"web.yaml:2 defines it too: the first of the two")
	b.want(0, "get se web -n default", "web.yaml:2")
	b.want(0, "get se web -n default --store", "revision 3")
	b.want(0, "delete se default/web", "web.yaml:2 defines it too: the first of the two")
	b.want(1, "delete se default/web", "web.yaml:2 defines it: delete it there")
	b.want(0, "delete -f "+b.dir+"/all", "revision 5: 2 deleted")

	b.want(1, "diff -f "+b.dir+"/all", "+++ ServiceEntry default/a", "+++ ServiceEntry default/b")
	b.want(0, "apply -f "+b.dir+"/all", "revision 6: 2 created")
	b.want(0, "diff -f "+b.dir+"/all")
	b.want(2, "diff -f "+b.file("bad.yaml", strings.Replace(service("bad", "10.0.0.1"), "hosts", "hostz", 1)), "hostz")
	edit := func(script string, code int, words ...string) {
		cmd := exec.Command(harness.Program("ashorectl"), "--socket", b.Socket(), "edit", "se", "default/a")
		cmd.Env = append(os.Environ(), "VISUAL=", "EDITOR=sed -i "+script, "TMPDIR="+t.TempDir())
		out, _ := cmd.CombinedOutput() // its exit code is what is compared
		for _, w := range words {
			if cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), w) {
				t.Errorf("edit with %s: exit code %d, want %d, with %q\n%s", script, cmd.ProcessState.ExitCode(), code, w, out)
			}
		}
	}
	edit("s/10.0.0.1/10.0.0.3/", 0, "ServiceEntry default/a changed", "revision 7: 1 changed")
	edit("s/10.0.0.9/10.0.0.4/", 0, "nothing was changed")
	edit("s/hosts/hostz/", 1, "hostz", "nothing was written; the text is in ")
	b.want(0, "get se default/a --store -o yaml", "address: 10.0.0.3")
	b.want(0, "delete -f "+b.dir+"/all", "revision 8: 2 deleted")

	cmd := exec.Command(harness.Program("ashorectl"), "--socket", b.Socket(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(service("piped", "10.0.0.1"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "default/piped created") {
		t.Errorf("standard input: %v\n%s", err, out)
	}
}

// The way from files to the store: what a file defines is in use from the store once the file is
// gone, and never missing.
func TestFromFiles(t *testing.T) {
	t.Parallel()
	web := service("web", "10.0.0.1")
	b := newBench(t, map[string]string{"web.yaml": web, "other.yaml": service("other", "10.0.0.1")})
	b.want(0, "apply -f "+b.Files, "web.yaml:2 defines it too", "revision 1: 2 created")
	b.want(1, "problems", "defined in web.yaml:2 of source ", "which is used, and again in ")
	b.Remove("web.yaml")
	harness.Eventually(t, "the object is in use from the store", func() error {
		found, err := admin.Send(t.Context(), b.Admin, admin.CallObjects, admin.ObjectQuery{Kind: "se", Namespace: "default", Name: "web"})
		if err != nil {
			t.Fatalf("it is missing: %v", err)
		}
		if found[0].Origin.File != "" {
			return fmt.Errorf("it is in use from %s", found[0].Origin.File)
		}
		return nil
	})
	b.want(0, "get se web -n default", "store ", "revision 1")
}

// Errors say what, where and what to do; nothing of it is written.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	good := b.file("good.yaml", service("good", "10.0.0.1"))
	if err := os.Symlink(b.dir+"/nowhere.yaml", b.dir+"/link.yaml"); err != nil {
		t.Fatal(err)
	}
	large := b.file("large.yaml", "")
	if err := os.Truncate(large, 100<<20); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		code  int
		args  string
		words []string
	}{
		"empty":          {1, "-f " + b.file("empty.yaml", ""), []string{"empty.yaml", "the file is empty"}},
		"unknown kind":   {1, "-f " + b.file("kind.yaml", strings.Replace(service("a", "1.1.1.1"), "ServiceEntry", "ServiceEntri", 1)), []string{"kind.yaml:3", "did you mean"}},
		"wrong file":     {1, "-f " + b.file("wrong.yaml", "image: nginx\n"), []string{"wrong.yaml:1", "the kind is missing"}},
		"half-written":   {1, "-f " + b.file("half.yaml", strings.TrimSuffix(service("a", "1.1.1.1"), "}]\n")), []string{"half.yaml:"}},
		"wrong field":    {1, "-f " + b.file("field.yaml", strings.Replace(service("a", "1.1.1.1"), "8080", "80800", 1)), []string{"field.yaml:9", "spec.ports[0]"}},
		"100 MB":         {1, "-f " + large, []string{"large.yaml"}},
		"binary":         {1, "-f " + b.file("program.yaml", "\x7fELF\x02\xff\xfe"), []string{"program.yaml:1", "not UTF-8"}},
		"dangling link":  {2, "-f " + b.dir + "/link.yaml", []string{"link.yaml", "no such file"}},
		"one key twice":  {1, "-f " + b.file("twice.yaml", service("a", "1.1.1.1")+service("a", "1.1.1.1")), []string{"twice.yaml", "remove one of the two"}},
		"not there":      {2, "-f " + b.dir + "/none.yaml", []string{"no such file"}},
		"nothing named":  {2, "", []string{"-f"}},
		"no such moment": {1, "--at 99", []string{"no such revision"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields("apply " + c.args)
			if name != "nothing named" {
				args = append(args, "-f", good)
			}
			out, code := b.ctl(args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, w := range c.words {
				if !strings.Contains(out, w) {
					t.Errorf("it did not print %q:\n%.2000s", w, out)
				}
			}
		})
	}
	if got := b.addresses(); len(got) > 0 {
		t.Errorf("the store has %v, want nothing", got)
	}
	same := func(args string) string {
		out, _ := b.ctl(strings.Fields(args)...)
		return strings.ReplaceAll(out, "ashorectl: nothing was written\n", "")
	}
	if a, v := same("apply -f "+b.dir+"/field.yaml -f "+b.dir+"/kind.yaml"), same("validate -f "+b.dir+"/field.yaml -f "+b.dir+"/kind.yaml"); a != v {
		t.Errorf("apply says\n%s\nvalidate says\n%s", a, v)
	}
}
