package main

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// savedState keeps what is active in the state folder, for the next start.
type savedState struct {
	objects  *feed.Writer[*config.Object]
	services *feed.Writer[registry.Instances]
	unread   []feed.Problem // of the start
}

// openSaved reads what was saved before the restart. What cannot be read is a problem until the
// next start.
func openSaved(ctx context.Context, home *bolt.Store, log hclog.Logger) (*savedState, push.Saved) {
	s := &savedState{
		objects:  feed.NewWriter(home, "config", config.Codec(), log),
		services: feed.NewWriter(home, "services", registry.Codec(), log),
	}
	var saved push.Saved
	var err error
	if saved.Objects, err = feed.Load(ctx, home, "config", config.Codec()); err != nil {
		s.report(err, log)
	}
	if saved.Services, err = feed.Load(ctx, home, "services", registry.Codec()); err != nil {
		s.report(err, log)
	}
	return s, saved
}

// savedSources are the names of the sources of objects that delivered before the restart.
func savedSources(saved push.Saved) map[string]bool {
	names := map[string]bool{}
	for _, group := range saved.Objects {
		names[group.Source] = true
	}
	return names
}

func (s *savedState) report(err error, log hclog.Logger) {
	log.Error("a part of what was active before the restart cannot be read", "error", err)
	s.unread = append(s.unread, feed.Problem{Severity: feed.Warning, Source: "saved state",
		Text: "a part of what was active before the restart cannot be read, and is used only when its source delivers it: " + err.Error()})
}

// save implements push.AssemblerConfig.Save.
func (s *savedState) save(changed push.Saved) {
	s.objects.Put(changed.Objects)
	s.services.Put(changed.Services)
}

func (s *savedState) problems() []feed.Problem {
	return append(append(append([]feed.Problem{}, s.unread...), s.objects.Problems()...), s.services.Problems()...)
}
