package jwks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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
	// firstRetry is the time to the first retry. It doubles up to the time between refreshes.
	firstRetry = time.Second
	// maxFile bounds the file of documents, in bytes.
	maxFile = 64 << 20
)

// KeeperConfig configures a Keeper. Fetch and Log are required.
type KeeperConfig struct {
	// Fetch fetches one document: Fetcher.Fetch.
	Fetch func(ctx context.Context, url string) (*Set, error)
	// File has the documents after a restart. Empty: they are not saved.
	File string
	// Refresh is how often each document is fetched. Zero means 20m, as in Istio.
	Refresh time.Duration
	Log     hclog.Logger
}

// Keeper keeps the documents of some URLs up to date. A document that cannot be fetched any more
// stays as it was.
type Keeper struct {
	cfg   KeeperConfig  // immutable
	wake  chan struct{} // capacity 1; has Run look
	asked atomic.Bool   // Want was called since Run looked

	mu   sync.Mutex
	docs map[string]*keyDocument // guarded by mu
}

// keyDocument is one document. The Keeper's mu guards it.
type keyDocument struct {
	set    *Set          // nil: never fetched
	failed error         // why the latest fetch failed
	since  time.Time     // of failed: the first of a series
	due    time.Time     // when it is fetched next
	retry  time.Duration // after a failed fetch
}

// NewKeeper reads the documents in File. If it cannot be read, that is logged.
func NewKeeper(c KeeperConfig) *Keeper {
	if c.Refresh == 0 {
		c.Refresh = 20 * time.Minute
	}
	k := &Keeper{cfg: c, wake: make(chan struct{}, 1), docs: map[string]*keyDocument{}}
	if err := k.load(); err != nil {
		c.Log.Warn("keys of issuers in the state folder cannot be read and are fetched again", "error", err)
	}
	return k
}

func (k *Keeper) load() error {
	if k.cfg.File == "" {
		return nil
	}
	data, _, err := readfile.Read(k.cfg.File, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var texts map[string]string
	if err == nil {
		err = json.Unmarshal(data, &texts)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", k.cfg.File, err)
	}
	for url, text := range texts {
		if set, err := Parse([]byte(text)); err == nil { // else it is fetched at once
			k.docs[url] = &keyDocument{set: set, due: time.Now().Add(firstRetry)}
		}
	}
	return nil
}

// save writes the documents to File.
func (k *Keeper) save(texts map[string]string) {
	if k.cfg.File == "" {
		return
	}
	data, err := json.Marshal(texts)
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("they have %d bytes, at most %d are saved", len(data), maxFile)
	}
	if err == nil {
		err = wholefile.Write(k.cfg.File, data)
	}
	if err != nil {
		k.cfg.Log.Warn("keys of issuers cannot be saved: after a restart they are fetched before proxies are served",
			"error", err)
	}
}

// Want sets the URLs whose documents are kept from now on. It does not wait.
func (k *Keeper) Want(urls []string) {
	k.mu.Lock()
	maps.DeleteFunc(k.docs, func(url string, _ *keyDocument) bool { return !slices.Contains(urls, url) })
	for _, url := range urls {
		if k.docs[url] == nil {
			k.docs[url] = &keyDocument{}
		}
	}
	k.mu.Unlock()
	k.asked.Store(true)
	task.Poke(k.wake)
}

// Set returns the document of a URL; nil if it was never fetched.
func (k *Keeper) Set(url string) *Set {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.docs[url]; d != nil {
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
func (k *Keeper) Failures() []Failure {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Failure
	for _, url := range slices.Sorted(maps.Keys(k.docs)) {
		if d := k.docs[url]; d.failed != nil {
			out = append(out, Failure{URL: url, Err: d.failed, Since: d.since, Kept: d.set != nil})
		}
	}
	return out
}

// Run fetches until ctx ends. It calls report with all documents by URL when they have changed.
// After Want it does so once every URL has a document or has failed. report returns when it is
// done, or ctx has ended. It must not change the map.
func (k *Keeper) Run(ctx context.Context, report func(ctx context.Context, texts map[string]string)) error {
	var reported map[string]string
	for ctx.Err() == nil {
		asked := k.asked.Swap(false)
		wait := k.fetch(ctx)
		texts := k.texts()
		changed := asked || !maps.Equal(texts, reported)
		if ctx.Err() == nil && changed && !k.asked.Load() { // else the next round answers that Want too
			report(ctx, texts)
			reported = texts
			k.save(texts)
		}
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-time.After(wait):
		}
	}
	return nil
}

// fetch fetches the documents that are due, and returns after how long the next one is.
func (k *Keeper) fetch(ctx context.Context) time.Duration {
	var fetching errgroup.Group
	fetching.SetLimit(maxFetches)
	k.mu.Lock()
	docs, now := maps.Clone(k.docs), time.Now()
	maps.DeleteFunc(docs, func(_ string, d *keyDocument) bool { return d.due.After(now) })
	k.mu.Unlock()
	for url, d := range docs {
		fetching.Go(func() error {
			set, err := k.cfg.Fetch(ctx, url)
			if ctx.Err() == nil {
				k.update(url, d, set, err)
			}
			return nil
		})
	}
	_ = fetching.Wait() // each document has its error
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := k.cfg.Refresh
	for _, d := range k.docs {
		wait = min(wait, time.Until(d.due))
	}
	return wait
}

// update sets the result of a fetch.
func (k *Keeper) update(url string, d *keyDocument, set *Set, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := k.cfg.Refresh
	switch {
	case err == nil:
		if d.failed != nil {
			k.cfg.Log.Info("keys of an issuer are fetched again", "url", url,
				"after", time.Since(d.since).Round(time.Second))
		}
		d.set = set
	case d.failed == nil:
		d.since, d.retry = time.Now(), firstRetry
		k.cfg.Log.Warn("keys of an issuer cannot be fetched", "url", url, "error", err, "earlier keys in use", d.set != nil)
		fallthrough
	default:
		wait, d.retry = d.retry, min(2*d.retry, k.cfg.Refresh)
	}
	d.failed = err
	// Jitter, so that documents that were first wanted together are not fetched together.
	d.due = time.Now().Add(wait - time.Duration(rand.Int64N(int64(wait)/10+1)))
}

// texts are the documents that were fetched or saved.
func (k *Keeper) texts() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	texts := make(map[string]string, len(k.docs))
	for url, d := range k.docs {
		if d.set != nil {
			texts[url] = d.set.Text()
		}
	}
	return texts
}
