package main

import (
	"io"

	"github.com/hashicorp/go-hclog"
)

// newLogger writes to w as the settings say.
func newLogger(s logSettings, w io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name:       "ashored",
		Level:      hclog.LevelFromString(s.Level),
		JSONFormat: s.Format == "json",
		Output:     w,
	})
}
