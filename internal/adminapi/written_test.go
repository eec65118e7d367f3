package adminapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/push"
)

// objectsOf are the objects of files.
func objectsOf(t *testing.T, texts ...string) push.Objects {
	t.Helper()
	var out push.Objects
	for i, text := range texts {
		found := config.Parse(fmt.Sprintf("%d.yaml", i), []byte(text))
		if len(found.Problems) > 0 {
			t.Fatal(found.Problems)
		}
		for _, o := range found.Objects {
			out = out.With(o.Key, o)
		}
	}
	return out
}

// Each object that is created, changed or deleted is one event, without what is in it.
func TestWritten(t *testing.T) {
	t.Parallel()
	var got []audit.Event
	w := &ConfigAudit{Record: func(e audit.Event) { got = append(got, e) }}
	web, api := fmt.Sprintf(entryFile, "web"), fmt.Sprintf(entryFile, "api")
	steps := []struct {
		files []string
		want  string // reason, target
	}{
		{[]string{web}, ""},
		{[]string{web}, ""},
		{[]string{web, api}, "created ServiceEntry shop/api"},
		{[]string{web, strings.ReplaceAll(strings.Replace(api, "name: api,", "name: api, labels: {a: hidden},", 1), "10.0.0.1", "10.0.0.2")}, "changed ServiceEntry shop/api"},
		{[]string{web}, "deleted ServiceEntry shop/api"},
	}
	for i, s := range steps {
		got = nil
		w.Published(objectsOf(t, s.files...))
		text := ""
		for _, e := range got {
			text += e.Reason + " " + e.Target
			if strings.Contains(fmt.Sprint(e), "hidden") || e.Action != audit.ConfigWrite {
				t.Errorf("step %d: %+v", i, e)
			}
			if before, now := e.Details["before"], e.Details["hash"]; before == now ||
				(before == "") != (e.Reason == "created") || (now == "") != (e.Reason == "deleted") {
				t.Errorf("step %d: hashes %q and %q", i, before, now)
			}
		}
		if text != s.want {
			t.Errorf("step %d: got %q, want %q", i, text, s.want)
		}
	}
}

// A change of everything does not flood the log.
func TestWrittenMuch(t *testing.T) {
	t.Parallel()
	var got []audit.Event
	w := &ConfigAudit{Record: func(e audit.Event) { got = append(got, e) }}
	w.Published(push.Objects{})
	var files []string
	for i := range maxWritten + 5 {
		files = append(files, fmt.Sprintf(entryFile, fmt.Sprintf("s%d", i)))
	}
	w.Published(objectsOf(t, files...))
	if len(got) != maxWritten+1 || got[maxWritten].Reason != "5 more objects were changed at once" {
		t.Errorf("%d events, the last one %+v", len(got), got[len(got)-1])
	}
}

// An object that another source takes over with the same content is no change.
func TestWrittenElsewhere(t *testing.T) {
	t.Parallel()
	var got []string
	w := &ConfigAudit{Record: func(e audit.Event) { got = append(got, e.Reason+" by "+e.Actor+" "+e.Details["revision"]) }}
	of := func(source, revision, address string) push.Objects {
		var out push.Objects
		for key, o := range objectsOf(t, strings.Replace(fmt.Sprintf(entryFile, "web"), "10.0.0.1", address, 1)).All() {
			o.Origin, o.Revision = config.Origin{Source: source}, revision
			out = out.With(key, o)
		}
		return out
	}
	for _, o := range []push.Objects{{}, of("store:x", "4", "10.0.0.1"), of("file:y", "", "10.0.0.1"),
		of("file:y", "", "10.0.0.3")} {
		w.Published(o)
	}
	want := []string{"created by store:x 4", "changed by file:y "}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
