package server

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
)

// Reload applies the sources and the log level of next. Other changes are reported until the next
// start. err is why the settings could not be read. On error the former ones stay in use, and a
// problem says why. One call at a time, while Run runs.
func (s *Server) Reload(ctx context.Context, next settings.Config, err error) {
	event := audit.Event{Action: audit.SettingsReload, Actor: "ashored", Target: "settings"}
	var later []string
	if err == nil {
		err = s.replaceSources(ctx, next.SourceList)
	}
	if err != nil {
		s.log.Error("the settings are not reloaded; the former ones stay in use", "error", err)
		event.Outcome, event.Reason = audit.Failed, err.Error()
	} else {
		s.log.SetLevel(hclog.LevelFromString(next.Log.Level))
		s.settings.Log.Level = next.Log.Level
		later = append(s.settings.Differences(next), s.exports.reload(next.SourceList)...)
		names := settings.SourceNames(next.SourceList)
		s.log.Info("the settings are reloaded", "sources", names, "wait_for_restart", later)
		event.Details = map[string]string{"sources": strings.Join(names, ", "), "wait": strings.Join(later, ", ")}
	}
	s.audit.Record(event)
	s.reload.Store(reloadProblems(err, later))
}

// replaceSources makes the sources of a list the active ones. On error nothing changes.
func (s *Server) replaceSources(ctx context.Context, list []settings.Source) error {
	sources, err := s.sources.apply(list)
	if err != nil {
		return err
	}
	return s.assembler.SetSources(ctx, sources) // fails only when the program ends
}

// reloadProblems are the settings that wait for the next start, or why the last reload was refused.
func reloadProblems(refused error, later []string) *[]feed.Problem {
	var out []feed.Problem
	now := time.Now()
	if refused != nil {
		for line := range strings.Lines(refused.Error()) {
			out = append(out, feed.Problem{Severity: feed.Error, Source: "settings",
				Text: strings.TrimSpace(line) + "; the former settings stay in use", Stale: true, Since: now})
		}
	}
	for _, name := range later {
		out = append(out, feed.Problem{Severity: feed.Warning, Source: "settings", Field: name, Since: now,
			Text: name + " has changed in the settings file: restart ashored to apply it"})
	}
	return &out
}
