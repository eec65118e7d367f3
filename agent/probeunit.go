package agent

import (
	"context"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"
)

// unitActive asks systemd whether a unit is active. Errors: why it is not.
func unitActive(ctx context.Context, unit string) error {
	conn, err := dbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("ask systemd for %s: %w", plain(unit), err)
	}
	defer conn.Close()
	p, err := conn.GetUnitPropertyContext(ctx, unit, "ActiveState")
	if err != nil {
		return fmt.Errorf("ask systemd for %s: %w", plain(unit), err)
	}
	// Source: systemctl(1), is-active: units that reload their settings are active.
	if state := p.Value.Value(); state != "active" && state != "reloading" {
		return fmt.Errorf("the unit %s is %v", plain(unit), state)
	}
	return nil
}
