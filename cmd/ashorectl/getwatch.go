package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// watchPause is how often what is watched is asked for.
const watchPause = time.Second

// objectQuery is which objects are asked for.
type objectQuery struct {
	kind, namespace, name string
	store                 bool // what the store has, and not what is in use
}

func (q objectQuery) ask(c *admin.Client, ctx context.Context) ([]admin.Object, error) {
	if q.store {
		return c.Stored(ctx, q.kind, q.namespace, q.name)
	}
	return c.Objects(ctx, q.kind, q.namespace, q.name)
}

// namesOrFormat is a format, a wide table, or the names alone.
type namesOrFormat struct {
	format      *format
	names, wide bool
}

func (f *namesOrFormat) Set(s string) error {
	f.names, f.wide = s == "name", s == "wide"
	if f.names || f.wide {
		return nil
	}
	if err := f.format.Set(s); err != nil {
		return errors.New("want table, wide, json, yaml or name")
	}
	return nil
}

func (f *namesOrFormat) String() string {
	switch {
	case f.names:
		return "name"
	case f.wide:
		return "wide"
	case f.format == nil:
		return ""
	}
	return f.format.String()
}

func (f *namesOrFormat) Type() string { return "format" }

// writeNames writes "virtualservice shop/web", one a line.
func writeNames(w io.Writer, found []admin.Object) error {
	for _, o := range found {
		if _, err := fmt.Fprintln(w, nameLine(o)); err != nil {
			return err
		}
	}
	return nil
}

func nameLine(o admin.Object) string {
	return printable(strings.ToLower(o.Kind) + " " + o.Metadata.Namespace + "/" + o.Metadata.Name)
}

// watchObjects writes what is there, and then what changes, until it is interrupted.
func (t *tool) watchObjects(cmd *cobra.Command, q objectQuery, names bool) error {
	c, err := t.client()
	if err != nil {
		return err
	}
	var seen map[string]admin.Object
	for {
		found, err := q.ask(c, cmd.Context())
		if errors.Is(err, admin.ErrNotFound) {
			found, err = nil, nil // it may come
		}
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case err != nil:
			return blamed(cmd, err)
		}
		now := byName(found)
		if err := t.writeChanges(cmd.OutOrStdout(), seen, now, names); err != nil {
			return err
		}
		seen = now
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

func byName(found []admin.Object) map[string]admin.Object {
	out := make(map[string]admin.Object, len(found))
	for _, o := range found {
		out[o.Metadata.Namespace+"/"+o.Metadata.Name] = o
	}
	return out
}

// watchEvent is a change for programs.
type watchEvent struct {
	// Event is "+", "~", "-" or "!".
	Event  string       `json:"event"`
	Object object       `json:"object"`
	Origin admin.Origin `json:"origin"`
	// Unusable is why it cannot be read, with "!" alone.
	Unusable string `json:"unusable,omitempty"`
}

// writeChanges writes how two states differ, a line for each object.
func (t *tool) writeChanges(w io.Writer, old, now map[string]admin.Object, names bool) error {
	return eachChange(old, now, sameObject, func(event string,
		o admin.Object) error {
		return t.writeEvent(w, event, o, names)
	})
}

// eachChange tells what is new ("+"), other than before ("~") or gone ("-"), by name.
func eachChange[T any](old, now map[string]T, same func(a, b T) bool, tell func(event string, v T) error) error {
	all := maps.Clone(now)
	for name, v := range old {
		if _, still := now[name]; !still {
			all[name] = v
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before, had := old[name]
		after, has := now[name]
		event := "~"
		switch {
		case had && has && same(before, after):
			continue
		case !had:
			event = "+"
		case !has:
			event = "-"
		}
		if err := tell(event, all[name]); err != nil {
			return err
		}
	}
	return nil
}

// sameObject says that nothing of an object has changed, its place included.
func sameObject(a, b admin.Object) bool {
	return a.Unusable == b.Unusable && a.Origin == b.Origin && bytes.Equal(a.Spec, b.Spec) &&
		maps.Equal(a.Metadata.Labels, b.Metadata.Labels) && maps.Equal(a.Metadata.Annotations, b.Metadata.Annotations)
}

func (t *tool) writeEvent(w io.Writer, event string, o admin.Object, names bool) error {
	place := orDash(placeOf(o.Origin))
	e := watchEvent{Event: event, Object: object{o.APIVersion, o.Kind, o.Metadata, o.Spec}, Origin: o.Origin}
	if o.Unusable != "" && event != "-" { // it is there all the same
		event, place = "!", o.Unusable
		e.Event, e.Unusable = event, o.Unusable
	}
	switch {
	case names:
		_, err := fmt.Fprintln(w, event, nameLine(o))
		return err
	case t.output == jsonText:
		return json.NewEncoder(w).Encode(e)
	case t.output == yamlText:
		b, err := toYAML(e)
		if err == nil {
			_, err = fmt.Fprintf(w, "---\n%s", b)
		}
		return err
	}
	_, err := fmt.Fprintln(w, printable(fmt.Sprintf("%s %s/%s  %s", event, o.Metadata.Namespace, o.Metadata.Name,
		place)))
	return err
}
