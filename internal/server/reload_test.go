package server

import (
	"errors"
	"testing"
)

// A refused file is a problem until the next reload. Settings that wait for a restart stay listed.
func TestReloadProblems(t *testing.T) {
	t.Parallel()
	var r reloadProblems
	for _, step := range []struct {
		name  string
		err   error
		later []string
		want  int
	}{
		{"waiting", nil, []string{"domain"}, 1},
		{"refused", errors.New("a: bad\nb: bad"), nil, 3},
		{"as before", nil, nil, 0},
	} {
		r.set(step.err, step.later)
		if got := r.problems(); len(got) != step.want {
			t.Errorf("%s: got %v, want %d problems", step.name, got, step.want)
		}
	}
}
