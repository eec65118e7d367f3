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
// start. On error the former settings stay in use. One call at a time, while Run runs.
func (s *Server) Reload(ctx context.Context, next settings.Config) error {
	if err := s.replaceSources(ctx, next.SourceList); err != nil {
		s.RefuseReload(err)
		return err
	}
	s.log.SetLevel(hclog.LevelFromString(next.Log.Level))
	s.settings.SourceList, s.settings.Log.Level = next.SourceList, next.Log.Level
	later := append(s.settings.Differences(next), s.exports.reload(next.SourceList)...)
	names := settings.SourceNames(next.SourceList)
	s.log.Info("the settings are reloaded", "sources", names, "wait_for_restart", later)
	s.audit.Record(audit.Event{Action: audit.SettingsReload, Actor: "ashored", Target: "settings",
		Details: map[string]string{"sources": strings.Join(names, ", "), "wait": strings.Join(later, ", ")}})
	s.reload.Store(reloadProblems(nil, later))
	return nil
}

// RefuseReload reports why the settings file was not taken.
func (s *Server) RefuseReload(err error) {
	s.log.Error("the settings are not reloaded; the former ones stay in use", "error", err)
	s.audit.Record(audit.Event{Action: audit.SettingsReload, Actor: "ashored", Target: "settings",
		Outcome: audit.Failed, Reason: err.Error()})
	s.reload.Store(reloadProblems(err, nil))
}

// replaceSources makes the sources of a list the active ones. On error nothing changes.
func (s *Server) replaceSources(ctx context.Context, list []settings.Source) error {
	sources, take, err := s.sources.make(list)
	if err != nil {
		return err
	}
	take()
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
