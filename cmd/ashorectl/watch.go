package main

import (
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// watchInterval is how often watched objects are requested. Services are streamed.
const watchInterval = time.Second

// watcher prints how lists of items change. One goroutine owns it.
type watcher struct {
	tool  *tool
	cmd   *cobra.Command
	shown map[string][]item // by list: all objects, or the items of one service
}

// watchEvent is a change for programs.
type watchEvent struct {
	// Event is "+" for a new item, "~" for a changed one, "-" for a deleted one.
	Event  string `json:"event"`
	Object any    `json:"object"`
}

// watchObjects prints the objects, and then changes until the context ends.
func (t *tool) watchObjects(cmd *cobra.Command, q getQuery) error {
	w := &watcher{tool: t, cmd: cmd, shown: map[string][]item{}}
	for {
		found, err := ask(t, cmd, q.objects)
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case errors.Is(err, admin.ErrNotFound): // it may be created
			found = nil
		case err != nil:
			return err
		}
		if err := w.update("", objectItems(found)); err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(watchInterval):
		}
	}
}

// watchServices prints the items of services, and then changes until the context ends.
func (t *tool) watchServices(cmd *cobra.Command, q admin.ServiceQuery, v serviceView) error {
	c, err := t.client()
	if err != nil {
		return err
	}
	w := &watcher{tool: t, cmd: cmd, shown: map[string][]item{}}
	return invalidIsUsage(cmd, c.Services(cmd.Context(), q, func(e admin.ServiceEvent) error {
		service := e.Service.Namespace + "/" + e.Service.Host
		switch e.Event {
		case admin.ServiceIs:
			return w.update(service, v.items(e.Service))
		case admin.ServiceGone:
			return w.update(service, nil)
		}
		return nil
	}))
}

// update prints how a list differs from the one before.
func (w *watcher) update(list string, now []item) error {
	deleted, old := map[string]item{}, w.shown[list]
	for _, it := range old {
		deleted[it.id] = it
	}
	for _, it := range now {
		before, existed := deleted[it.id]
		delete(deleted, it.id)
		event := "+"
		switch {
		case existed && reflect.DeepEqual(before.value, it.value) && reflect.DeepEqual(before.cells, it.cells):
			continue
		case existed:
			event = "~"
		}
		if err := w.print(event, it); err != nil {
			return err
		}
	}
	for _, it := range old {
		if _, ok := deleted[it.id]; ok {
			if err := w.print("-", it); err != nil {
				return err
			}
		}
	}
	w.shown[list] = now
	if len(now) == 0 {
		delete(w.shown, list)
	}
	return nil
}

func (w *watcher) print(event string, it item) error {
	line := event + " " + it.name
	if w.tool.output != nameFormat {
		tb := newTable()
		tb.add(w.tool.cells(it)...)
		line = event + " " + strings.Join(tb.rows[1], "  ")
	}
	return w.tool.printEvent(w.cmd, watchEvent{event, it.value}, line)
}
