package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	s.reload.set(nil, later)
	return nil
}

// RefuseReload reports why the settings file was not taken.
func (s *Server) RefuseReload(err error) {
	s.log.Error("the settings are not reloaded; the former ones stay in use", "error", err)
	s.audit.Record(audit.Event{Action: audit.SettingsReload, Actor: "ashored", Target: "settings",
		Outcome: audit.Failed, Reason: err.Error()})
	s.reload.set(err, nil)
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

// reloadProblems are those of the last reload. Safe for concurrent use.
type reloadProblems struct {
	mu      sync.Mutex
	refused []feed.Problem // guarded by mu: why the last file was refused
	later   []feed.Problem // guarded by mu: settings that wait for the next start
}

// set replaces the problems. A refused file leaves those of the one before.
func (r *reloadProblems) set(refused error, later []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.refused = nil
	if refused != nil {
		for line := range strings.Lines(refused.Error()) {
			if line = strings.TrimSpace(line); line != "" {
				r.refused = append(r.refused, feed.Problem{Severity: feed.Error, Source: "settings",
					Text: line + "; the former settings stay in use", Stale: true, Since: now})
			}
		}
		return
	}
	r.later = nil
	for _, name := range later {
		r.later = append(r.later, feed.Problem{Severity: feed.Warning, Source: "settings", Field: name, Since: now,
			Text: fmt.Sprintf("%s has changed in the settings file: restart ashored to apply it", name)})
	}
}

func (r *reloadProblems) problems() []feed.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.refused, r.later)
}
