package xds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// A refusal is a problem until the address is registered or not asked for any more; of one group
// few are.
func TestRefusals(t *testing.T) {
	t.Parallel()
	var x refusals
	group := func(name string) *config.Object {
		return &config.Object{Key: config.Key{Kind: config.WorkloadGroup, Namespace: "shop", Name: name}}
	}
	web, api := group("web"), group("api")
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	note := func(group *config.Object, last int, err error) {
		x.note(registry.RegistrationKey{Group: group.Name, Name: fmt.Sprint(last)}, group, err, now)
	}
	want := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, p := range x.problems(now) {
			got = append(got, p.Object+": "+p.Text)
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	const first, second = "WorkloadGroup shop/api: registration refused: in use", "WorkloadGroup shop/web: registration refused: not allowed"
	note(api, 1, errors.New("in use"))
	note(web, 1, errors.New("not allowed"))
	note(web, 2, nil)
	want("two groups", first, second)
	now = now.Add(refusalAge)
	note(web, 1, errors.New("not allowed"))
	want("tried again", first, second)
	now = now.Add(time.Second)
	want("not tried again", second)
	note(web, 1, nil)
	want("registered")
	for i := range 1000 {
		note(web, i%250, fmt.Errorf("refused"))
	}
	if len(x.all) != maxRefusals {
		t.Errorf("%d are remembered", len(x.all))
	}
	now = now.Add(2 * refusalAge)
	note(api, 1, nil)
	if len(x.all) > 0 {
		t.Errorf("%d are remembered that are over", len(x.all))
	}
}
