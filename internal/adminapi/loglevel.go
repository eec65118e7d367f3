package adminapi

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
)

// SetLogLevel sets the level of the log until ashored restarts or reloads its settings. An empty
// level changes nothing. It returns the level in use. Errors: admin.ErrInvalid.
func (a *API) SetLogLevel(ctx context.Context, q admin.LogLevel) (admin.LogLevel, error) {
	if q.Level != "" {
		level := hclog.LevelFromString(q.Level)
		if level == hclog.NoLevel || level == hclog.Off {
			return q, invalid("unknown level %q: want trace, debug, info, warn or error", q.Level)
		}
		a.Log.Info("log level changed", "to", level, "by", admin.Actor(ctx))
		a.record(ctx, audit.LogLevel, "ashored", nil, "level", level.String())
		a.Log.SetLevel(level)
	}
	return admin.LogLevel{Level: a.Log.GetLevel().String()}, nil
}
