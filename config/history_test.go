package config

import (
	"errors"
	"testing"
)

// What a store has forgotten is not guessed.
func TestBackForgotten(t *testing.T) {
	t.Parallel()
	past := Past{Latest: "9", Since: "5"}
	for revision, want := range map[string]error{"4": ErrForgotten, "5": nil, "9": nil, "10": ErrNoRevision, "x": ErrNoRevision, "-1": ErrNoRevision} {
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
