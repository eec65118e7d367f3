package config

import (
	"errors"
	"testing"
	"time"
)

// What a store has forgotten is not guessed.
func TestBackForgotten(t *testing.T) {
	t.Parallel()
	past := Past{Latest: "9", Since: "5"}
	for revision, want := range map[string]error{"4": ErrForgotten, "5": nil, "9": nil, "10": ErrNoRevision,
		"x": ErrNoRevision, "-1": ErrNoRevision} {
		if _, err := Back(past, revision); !errors.Is(err, want) {
			t.Errorf("back to %s: got %v, want %v", revision, err, want)
		}
	}
	for _, bad := range []Past{{Latest: "x", Since: "0"}, {Latest: "9", Since: ""}} {
		if _, err := Back(bad, "5"); err == nil {
			t.Errorf("%+v: got no error", bad)
		}
	}
}

// Labels, annotations and the spec count; when it was created, and where it was read, does not.
func TestSameContent(t *testing.T) {
	t.Parallel()
	base := mustParse(t, "web.yaml", web)[0]
	for name, c := range map[string]struct {
		change func(*Object)
		want   bool
	}{
		"nothing":     {func(*Object) {}, true},
		"created":     {func(o *Object) { o.Created = time.Unix(1, 0) }, true},
		"place":       {func(o *Object) { o.Origin, o.Revision, o.Hash = Origin{File: "x"}, "7", 1 }, true},
		"no labels":   {func(o *Object) { o.Annotations = map[string]string{} }, true},
		"labels":      {func(o *Object) { o.Labels = map[string]string{"a": "b"} }, false},
		"annotations": {func(o *Object) { o.Annotations = map[string]string{"a": "b"} }, false},
		"key":         {func(o *Object) { o.Name = "other" }, false},
		"spec":        {func(o *Object) { info, _ := Info(o.Kind); o.Spec = info.NewSpec() }, false},
	} {
		o := *base
		c.change(&o)
		if got := SameContent(base, &o); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
	if SameContent(base, nil) || SameContent(nil, base) || !SameContent(nil, nil) {
		t.Error("nil is not what is there, and only nil is nil")
	}
}
