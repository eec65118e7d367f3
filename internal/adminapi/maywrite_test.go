package adminapi

import (
	"errors"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// Only admins write what can remove any protection.
func TestMayWrite(t *testing.T) {
	t.Parallel()
	for _, kind := range []config.Kind{config.EnvoyFilter, config.TrafficExtension, config.VirtualService} {
		changes := []config.Change{{Key: config.Key{Kind: kind, Namespace: "shop", Name: "a"}}}
		for _, role := range []admin.Role{admin.Operator, admin.Admin} {
			err := mayWrite(admin.WithCaller(t.Context(), "ann", role), changes)
			forbidden := role < admin.Admin && kind != config.VirtualService
			if errors.Is(err, admin.ErrForbidden) != forbidden {
				t.Errorf("%s by %v: got %v, want forbidden %v", kind, role, err, forbidden)
			}
		}
	}
}
