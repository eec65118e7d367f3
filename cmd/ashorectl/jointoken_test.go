package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// A shell that is given the commands installs, then joins with the words and the token as they are.
// An apt that reads standard input does not take the token, and without packages the agent does not start.
func TestJoinScript(t *testing.T) {
	t.Parallel()
	made := admin.Token{Token: "ashore-join.abc.secret",
		Join: []string{"ashore-agent", "join", "--control-plane", "a:1,[::1]:1", "--labels", "app=it's $HOME"}}
	for name, tc := range map[string]struct {
		installed    bool
		uid, apt     string
		want, refuse string
	}{
		"root":        {uid: "0", apt: "cat", want: "agent <join> <--control-plane> <a:1,[::1]:1> <--labels> <app=it's $HOME>\nashore-join.abc.secret\n", refuse: "sudo"},
		"sudo":        {uid: "7", apt: "cat", want: "sudo ashore-agent\nagent <join>"},
		"no packages": {uid: "0", apt: "exit 1", refuse: "agent"},
		"installed":   {installed: true, uid: "7", apt: "exit 1", want: "agent <join>", refuse: "sudo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for program, text := range map[string]string{
				"apt":  tc.apt,
				"id":   "echo " + tc.uid,
				"sudo": `echo sudo "$1"; exec "$@"`,

				"ashore-agent": "printf agent; printf ' <%s>' \"$@\"; echo; exec cat",
			} {
				if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+text+"\n"),
					0o700); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			sh := exec.Command("sh")
			sh.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
			sh.Stdin, sh.Stdout, sh.Stderr = strings.NewReader(joinScript(made, tc.installed)), &out, &out
			_ = sh.Run() // without packages it fails
			if got := out.String(); !strings.Contains(got, tc.want) || tc.refuse != "" &&
				strings.Contains(got, tc.refuse) {
				t.Errorf("got %q, want %q and no %q", got, tc.want, tc.refuse)
			}
		})
	}
}
