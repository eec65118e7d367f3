package jwks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

const (
	// maxFetches is how many documents are fetched at a time.
	maxFetches = 8
	// fetchTimeout bounds one fetch, with the discovery of the URL, unless Want says otherwise. As in
	// Istio.
	fetchTimeout = 5 * time.Second
	// retryInterval is the time from a failed fetch to the next one.
	retryInterval = 10 * time.Second
	// maxFile bounds the file of documents, in bytes: 4096 of the largest.
	maxFile = 1 << 30
)

// RefresherConfig configures a Refresher. Fetch and Log are required.
type RefresherConfig struct {
	// Fetch fetches one document: Fetcher.Fetch.
	Fetch func(ctx context.Context, url string) (*Set, error)
	// File has the documents after a restart. Empty: they are not saved.
	File string
	// Interval is how often each document is fetched. Zero means 20m, as in Istio.
	Interval time.Duration
	Log      hclog.Logger
}

// Refresher keeps the documents of some URLs up to date. A document that cannot be fetched any more
// stays as it was.
type Refresher struct {
	cfg  RefresherConfig // immutable
	wake chan struct{}   // capacity 1; receives after Want

	mu   sync.Mutex
	docs map[string]*keyDocument // guarded by mu
}

// keyDocument is one document. The Refresher's mu guards it.
type keyDocument struct {
	timeout time.Duration // of one fetch; zero: fetchTimeout
	set     *Set          // nil: never fetched
	failed  error         // why the latest fetch failed
	since   time.Time     // of failed: the first of a series
	due     time.Time     // when it is fetched next
}

// NewRefresher reads the documents in File. If it cannot be read, that is logged.
func NewRefresher(c RefresherConfig) *Refresher {
	c.Interval = cmp.Or(c.Interval, 20*time.Minute)
	r := &Refresher{cfg: c, wake: make(chan struct{}, 1), docs: map[string]*keyDocument{}}
	if c.File == "" {
		return r
	}
	if err := r.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.Warn("keys of issuers in the state folder cannot be read and are fetched again", "error", err)
	}
	return r
}

func (r *Refresher) load() error {
	data, _, err := readfile.Read(r.cfg.File, maxFile)
	if err != nil {
		return err
	}
	var texts map[string]string
	if err := json.Unmarshal(data, &texts); err != nil {
		return fmt.Errorf("%s: %w", r.cfg.File, err)
	}
	for url, text := range texts {
		if set, err := Parse([]byte(text)); err == nil { // else it is fetched at once
			r.docs[url] = &keyDocument{set: set, due: time.Now().Add(retryInterval)}
		}
	}
	return nil
}

// save writes the documents to File.
func (r *Refresher) save(texts map[string]string) {
	if r.cfg.File == "" {
		return
	}
	data, err := json.Marshal(texts)
	if err == nil {
		err = wholefile.Write(r.cfg.File, data)
	}
	if err != nil {
		r.cfg.Log.Warn("keys of issuers cannot be saved: after a restart they are fetched before proxies are served",
			"error", err)
	}
}

// Want sets the URLs whose documents are kept from now on, with the time that a fetch may take. Zero
// means 5s. It does not wait.
func (r *Refresher) Want(timeouts map[string]time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.docs, func(url string, _ *keyDocument) bool { _, ok := timeouts[url]; return !ok })
	for url, timeout := range timeouts {
		if r.docs[url] == nil {
			r.docs[url] = &keyDocument{}
		}
		r.docs[url].timeout = timeout
	}
	task.Poke(r.wake)
}

// Set returns the document of a URL; nil if it was never fetched.
func (r *Refresher) Set(url string) *Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.docs[url]; d != nil {
		return d.set
	}
	return nil
}

// Failure is a document that cannot be fetched.
type Failure struct {
	URL string
	Err error
	// Since is when that began.
	Since time.Time
	// Kept means that an earlier version is in use; else no token of the issuer is accepted.
	Kept bool
}

// Failures are the present ones, by URL.
func (r *Refresher) Failures() []Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Failure
	for _, url := range slices.Sorted(maps.Keys(r.docs)) {
		if d := r.docs[url]; d.failed != nil {
			out = append(out, Failure{URL: url, Err: d.failed, Since: d.since, Kept: d.set != nil})
		}
	}
	return out
}

// Run fetches until ctx ends. It calls report with all documents by URL when they have changed.
// After Want it does so once every URL has a document or has failed. report returns when it is
// done, or ctx has ended. It must not change the map.
func (r *Refresher) Run(ctx context.Context, report func(ctx context.Context, texts map[string]string)) error {
	var reported map[string]string
	for asked := false; ctx.Err() == nil; {
		r.fetch(ctx)
		texts, wait := r.texts()
		changed := asked || !maps.Equal(texts, reported)
		if ctx.Err() == nil && changed && len(r.wake) == 0 { // else the next round answers that Want too
			report(ctx, texts)
			reported, asked = texts, false
			r.save(texts)
		}
		select {
		case <-ctx.Done():
		case <-r.wake:
			asked = true
		case <-time.After(wait):
		}
	}
	return nil
}

// fetch fetches the documents that are due.
func (r *Refresher) fetch(ctx context.Context) {
	r.mu.Lock()
	docs, now := maps.Clone(r.docs), time.Now()
	maps.DeleteFunc(docs, func(_ string, d *keyDocument) bool { return d.due.After(now) })
	timeouts := map[string]time.Duration{}
	for url, d := range docs {
		timeouts[url] = cmp.Or(d.timeout, fetchTimeout)
	}
	r.mu.Unlock()
	var fetching errgroup.Group
	fetching.SetLimit(maxFetches)
	for url, d := range docs {
		fetching.Go(func() error {
			bounded, cancel := context.WithTimeout(ctx, timeouts[url])
			defer cancel()
			set, err := r.cfg.Fetch(bounded, url)
			if ctx.Err() == nil {
				r.update(url, d, set, err)
			}
			return nil
		})
	}
	_ = fetching.Wait() // each document has its error
}

// update sets the result of a fetch.
func (r *Refresher) update(url string, d *keyDocument, set *Set, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, log := time.Now(), r.cfg.Log
	if err == nil {
		if d.failed != nil {
			log.Info("keys of an issuer are fetched again", "url", url, "after", now.Sub(d.since).Round(time.Second))
		}
		d.set, d.due = set, now.Add(r.cfg.Interval)
	} else {
		if d.failed == nil {
			d.since = now
			log.Warn("keys of an issuer cannot be fetched", "url", url, "error", err, "earlier keys in use", d.set != nil)
		}
		d.due = now.Add(min(retryInterval, r.cfg.Interval))
	}
	d.failed = err
}

// texts are the documents that were fetched or saved, and the time until one is due.
func (r *Refresher) texts() (texts map[string]string, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts, wait = make(map[string]string, len(r.docs)), r.cfg.Interval
	for url, d := range r.docs {
		if d.set != nil {
			texts[url] = d.set.Text()
		}
		wait = min(wait, time.Until(d.due))
	}
	return texts, wait
}
