package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/ca"
)

// An error tells where it is to be mended: of a replica's token in its file, and of all else in the
// state folder.
func TestAuthorityError(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err         error
		has, hasNot string
	}{
		"a token": {fmt.Errorf("start: %w: setting ca.replicaToken: none", ca.ErrReplica), "setting ca.replicaToken: none", "state folder"},
		"a key":   {errors.New("cannot be read"), "cannot be read (in the state folder, setting state)", "ca.replicaToken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := authorityError(tc.err).Error(); !strings.Contains(got, tc.has) ||
				strings.Contains(got, tc.hasNot) {
				t.Errorf("got %q, want %q in it and no %q", got, tc.has, tc.hasNot)
			}
		})
	}
}
