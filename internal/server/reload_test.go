package server

import (
	"errors"
	"testing"
)

// Each line of why a file is refused is a problem, and each setting that waits for a restart.
func TestReloadProblems(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		err   error
		later []string
		want  int
	}{
		{"waiting", nil, []string{"domain", "log"}, 2},
		{"refused", errors.New("a: bad\nb: bad"), nil, 2},
		{"nothing", nil, nil, 0},
	} {
		if got := reloadProblems(tc.err, tc.later); len(*got) != tc.want {
			t.Errorf("%s: got %v, want %d problems", tc.name, got, tc.want)
		}
	}
}
