package outages

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// status is how ashored says that one of its sources stands.
func (w *world) status(name string) (feed.SourceStatus, error) {
	s, err := admin.Send(context.Background(), w.Admin, admin.CallStatus, admin.None{})
	if err != nil {
		return feed.SourceStatus{}, err
	}
	for _, src := range s.Sources {
		if src.Name == name {
			return src, nil
		}
	}
	return feed.SourceStatus{}, fmt.Errorf("there is no source %s among %+v", name, s.Sources)
}

// away waits until ashored says that a source is out of reach, with words, and since when; so do
// "ashorectl sources" and "ashorectl problems".
func (w *world) away(name, words string, began time.Time) {
	w.t.Helper()
	harness.Eventually(w.t, fmt.Sprintf("%s away with %q", name, words), func() error {
		s, err := w.status(name)
		if err == nil && (s.Error == "" || !strings.Contains(s.Error, words) || s.ErrorSince.IsZero()) {
			err = fmt.Errorf("its status is %+v", s)
		}
		return err
	})
	w.dated(name, words, began)
	if table := w.ctl("sources"); !strings.Contains(table, words) {
		w.t.Errorf("\"ashorectl sources\" does not tell of %s with %q:\n%s", name, words, table)
	}
}

// stale waits until ashored says that older content of a source is in use than there is, with words
// in a problem, and since when.
func (w *world) stale(name, words string, began time.Time) {
	w.t.Helper()
	harness.Eventually(w.t, fmt.Sprintf("%s stale with %q", name, words), func() error {
		s, err := w.status(name)
		if err == nil && s.Stale == 0 {
			err = fmt.Errorf("its status is %+v", s)
		}
		return err
	})
	w.problem(name, words) // after a start, not before the source has answered
	w.dated(name, words, began)
}

// retained waits until ashored says that items stay active which a source has lost, with words in a
// problem.
func (w *world) retained(name, words string, began time.Time) {
	w.t.Helper()
	harness.Eventually(w.t, fmt.Sprintf("items of %s retained", name), func() error {
		s, err := w.status(name)
		if err == nil && s.Retained == 0 {
			err = fmt.Errorf("its status is %+v", s)
		}
		return err
	})
	w.problem(name, words)
	w.dated(name, words, began)
}

// dated checks that ashorectl names the source, and when its error began.
func (w *world) dated(name, words string, began time.Time) {
	w.t.Helper()
	s, err := w.status(name)
	if err != nil {
		w.t.Fatal(err)
	}
	if of := s.ErrorSince; s.Error != "" && (of.After(time.Now()) || of.Before(began.Add(-time.Second))) {
		w.t.Errorf("%s is down since %v, and the outage began at %v", name, of, began)
	}
	if problems := w.ctl("problems"); !strings.Contains(problems, words) ||
		!strings.Contains(problems, name) {
		w.t.Errorf("\"ashorectl problems\" does not tell of %s with %q:\n%s", name, words, problems)
	}
}

// inTouch waits until nothing is wrong with a source.
func (w *world) inTouch(name string) {
	w.t.Helper()
	harness.Eventually(w.t, name+" is in touch", func() error {
		s, err := w.status(name)
		if err == nil && (s.Error != "" || !s.Synced || s.Problems > 0 || s.Stale > 0 || s.Retained > 0) {
			err = fmt.Errorf("its status is %+v", s)
		}
		return err
	})
}

// problem waits until ashored reports a problem with all words.
func (w *world) problem(words ...string) {
	w.t.Helper()
	harness.Eventually(w.t, fmt.Sprintf("a problem with %q", words), func() error {
		problems, err := admin.Send(context.Background(), w.Admin, admin.CallProblems, admin.None{})
		if err != nil {
			return err
		}
		for _, p := range problems {
			text, all := p.Source+" "+p.String(), true
			for _, word := range words {
				all = all && strings.Contains(text, word)
			}
			if all {
				return nil
			}
		}
		return fmt.Errorf("problems are %v", problems)
	})
}

// fine waits until ashored reports no problem.
func (w *world) fine() {
	w.t.Helper()
	harness.Eventually(w.t, "no problem", func() error {
		problems, err := admin.Send(context.Background(), w.Admin, admin.CallProblems, admin.None{})
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("problems are %v", problems)
		}
		return err
	})
}
