package server

import (
	"context"
	"errors"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// savedState keeps what is active in the state folder, for the next start.
type savedState struct {
	content  push.Saved // of before the restart
	objects  *feed.Writer[*config.Object]
	services *feed.Writer[registry.Instances]
}

// openSaved reads what was active before the restart. Content that cannot be read is logged, and
// used when its source delivers it.
func (s *Server) openSaved(ctx context.Context) *savedState {
	log := s.log.Named("saved state")
	out := &savedState{
		objects:  feed.NewWriter[*config.Object](s.home, "config", log),
		services: feed.NewWriter[registry.Instances](s.home, "services", log),
	}
	var err1, err2 error
	out.content.Objects, err1 = feed.Load[*config.Object](ctx, s.home, "config")
	out.content.Services, err2 = feed.Load[registry.Instances](ctx, s.home, "services")
	if err := errors.Join(err1, err2); err != nil {
		log.Error("a part of what was active before the restart cannot be read: it is used when its source delivers it",
			"error", err)
	}
	s.run("saved objects", out.objects.Run)
	s.run("saved services", out.services.Run)
	return out
}

// savedSources are the names of the sources of objects that delivered before the restart.
func savedSources(saved *savedState) map[string]bool {
	names := map[string]bool{}
	for _, group := range saved.content.Objects {
		names[group.Source] = true
	}
	return names
}

// save implements push.AssemblerConfig.Save.
func (s *savedState) save(changed push.Saved) {
	s.objects.Put(changed.Objects)
	s.services.Put(changed.Services)
}

func (s *savedState) problems() []feed.Problem {
	return append(s.objects.Problems(), s.services.Problems()...)
}
