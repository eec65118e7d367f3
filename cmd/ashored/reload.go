package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/sdnotify"
	"github.com/ashore-mesh/ashore/push"
)

// anew is how settings are read anew, and when.
type anew struct {
	read  func() (settings, error)
	asked <-chan os.Signal // hangups, those too that came after the settings were read first
}

// reloader takes in the settings file anew when the process is hung up on (SIGHUP): sources that
// came, went or changed take effect; a file with anything wrong in it is refused whole. What else
// has changed waits for the next start, and is told.
type reloader struct {
	anew
	current settings // what is in use
	maker   *sourceMaker
	arrange func(context.Context, push.Sources) error
	export  func([]sourceSettings) error
	record  func(audit.Event)
	log     hclog.Logger
	systemd sdnotify.Notifier

	mu      sync.Mutex
	refused []feed.Problem // guarded by mu: of the last file, when it was refused
	pending []feed.Problem // guarded by mu: settings that wait for the next start
}

// run waits for signals until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.asked:
			r.systemd.Reloading()
			r.reload(ctx)
			r.systemd.Tell(sdnotify.Ready)
		}
	}
}

// reload reads the file and takes it in, or tells why not.
func (r *reloader) reload(ctx context.Context) {
	next, err := r.read()
	if err == nil {
		err = r.arrangeAnew(ctx, next.sources)
	}
	if err != nil {
		r.log.Error("the settings are not taken; those from before stay", "error", err)
		r.record(audit.Event{Action: audit.SettingsReload, Actor: "ashored", Target: "settings", Outcome: audit.Failed,
			Reason: err.Error()})
		r.tell(refusedSettings(err), nil)
		return
	}
	waiting := unlike(r.current, next)
	r.current.sources = next.sources
	r.log.Info("the settings are taken", "sources", sourceNames(next.sources), "wait_for_restart", waiting)
	r.record(audit.Event{Action: audit.SettingsReload, Actor: "ashored", Target: "settings",
		Details: map[string]string{"sources": strings.Join(sourceNames(next.sources), ", "),
			"wait": strings.Join(waiting, ", ")}})
	r.tell(nil, pendingSettings(waiting))
}

// arrangeAnew has the sources of a list be those in use. With an error those of before are, and
// nothing is told of others.
func (r *reloader) arrangeAnew(ctx context.Context, list []sourceSettings) error {
	sources, take, err := r.maker.make(list)
	if err != nil {
		return err
	}
	if err := r.export(list); err != nil {
		return err
	}
	take()
	return r.arrange(ctx, sources) // fails at the end of the program alone
}

func (r *reloader) tell(refused, pending []feed.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = refused
	if refused == nil {
		r.pending = pending
	}
}

// problems are what is wrong with the last file, and what of it is not in use yet.
func (r *reloader) problems() []feed.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.refused, r.pending)
}

// refusedSettings has a problem for each line of an error.
func refusedSettings(err error) []feed.Problem {
	var out []feed.Problem
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, feed.Problem{Severity: feed.Error, Source: "settings",
				Text: line + "; the settings from before stay in use", Stale: true, Since: time.Now()})
		}
	}
	return out
}

// pendingSettings has a problem for each setting that waits for the next start.
func pendingSettings(names []string) []feed.Problem {
	var out []feed.Problem
	for _, n := range names {
		out = append(out, feed.Problem{
			Severity: feed.Warning, Source: "settings", Field: n, Since: time.Now(),
			Text: fmt.Sprintf("%s is another in the settings file: it takes effect when ashored is started again", n),
		})
	}
	return out
}

// unlike lists the sections that differ, without the sources.
func unlike(a, b settings) []string {
	var out []string
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		name := va.Type().Field(i).Tag.Get("yaml")
		if name == "" || name == "sources" {
			continue
		}
		if !equalSettings(va.Field(i).Interface(), vb.Field(i).Interface()) {
			out = append(out, name)
		}
	}
	return out
}

func equalSettings(a, b any) bool {
	na, isNode := a.(yaml.Node)
	if !isNode {
		return reflect.DeepEqual(a, b)
	}
	nb := b.(yaml.Node)
	return na.IsZero() == nb.IsZero() && (na.IsZero() || canonical(&na) == canonical(&nb))
}
