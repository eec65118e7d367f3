package jwks

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
)

const (
	// maxFetches is how many documents are fetched at a time.
	maxFetches = 8
	// firstRetry is after how long a document is asked for again that was not got; it doubles each
	// time up to the time between two fetches of one that was.
	firstRetry = time.Second
)

// KeeperConfig says what a Keeper keeps and where. Fetch and Log are needed.
type KeeperConfig struct {
	// Fetch gets one document: Fetcher.Fetch.
	Fetch func(ctx context.Context, url string) (*Set, error)
	// File holds the documents across restarts. Empty: they are forgotten.
	File string
	// Refresh is how often each document is fetched. Zero means 20m, as in Istio.
	Refresh time.Duration
	Log     hclog.Logger
}

// Keeper keeps the documents of some URLs fresh. A document that cannot be got any more is kept as
// it was.
type Keeper struct {
	cfg  KeeperConfig  // set once
	wake chan struct{} // cap 1; has Run look

	mu     sync.Mutex
	wanted []string                // guarded by mu: what Want said last
	asked  bool                    // guarded by mu: Want has said it since Run looked
	docs   map[string]*keyDocument // guarded by mu
}

// keyDocument is one document. The Keeper's mu guards it.
type keyDocument struct {
	text   string        // empty: never got
	failed error         // why the latest fetch did not get it
	since  time.Time     // of failed: the first of a series
	due    time.Time     // when it is fetched next
	retry  time.Duration // how long after a failed fetch
}

// NewKeeper reads what File holds of an earlier process; what cannot be read is logged, and fetched
// again.
func NewKeeper(c KeeperConfig) *Keeper {
	if c.Refresh == 0 {
		c.Refresh = 20 * time.Minute
	}
	k := &Keeper{cfg: c, wake: make(chan struct{}, 1), docs: map[string]*keyDocument{}}
	texts, err := readKept(c.File)
	if err != nil {
		c.Log.Warn("keys of issuers that were kept on disk are not used, and are fetched anew", "error", err)
	}
	for url, text := range texts {
		k.docs[url] = &keyDocument{text: text}
	}
	return k
}

// Want names the URLs whose documents are needed from now on. It does not wait.
func (k *Keeper) Want(urls []string) {
	k.mu.Lock()
	k.wanted, k.asked = slices.Clone(urls), true
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default: // it will look already
	}
}

// Failure is a document that could not be got.
type Failure struct {
	URL string
	Err error
	// Since is when that began.
	Since time.Time
	// Kept says that an earlier version of it is in use; else no token of the issuer is accepted.
	Kept bool
}

// Failures are those of now, by URL.
func (k *Keeper) Failures() []Failure {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Failure
	for _, url := range slices.Sorted(maps.Keys(k.docs)) {
		if d := k.docs[url]; d.failed != nil {
			out = append(out, Failure{URL: url, Err: d.failed, Since: d.since, Kept: d.text != ""})
		}
	}
	return out
}

// Run fetches until ctx ends. tell is given all documents by URL whenever they have changed, and
// after each Want once every one of its URLs has a document or has failed to give one. What is
// given is not changed any more. tell returns when it is taken, or ctx has ended.
func (k *Keeper) Run(ctx context.Context, tell func(ctx context.Context, texts map[string]string)) error {
	var told map[string]string
	for ctx.Err() == nil {
		asked := k.adopt()
		texts, missing := k.texts()
		if asked && !missing { // those of before are of use until they are fetched again
			tell(ctx, texts)
			told, asked = texts, false
		}
		wait := k.fetch(ctx)
		texts, _ = k.texts()
		changed := !maps.Equal(texts, told)
		if ctx.Err() == nil && (asked || changed) {
			tell(ctx, texts)
			told = texts
			k.keep(texts)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// adopt has the documents be those that Want named, and reports whether it named any since.
func (k *Keeper) adopt() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	asked := k.asked
	if k.asked = false; !asked {
		return false
	}
	maps.DeleteFunc(k.docs, func(url string, _ *keyDocument) bool { return !slices.Contains(k.wanted, url) })
	for _, url := range k.wanted {
		if k.docs[url] == nil {
			k.docs[url] = &keyDocument{}
		}
	}
	return true
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
				k.take(url, d, set, err)
			}
			return nil
		})
	}
	_ = fetching.Wait() // each failure stands in its document
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := k.cfg.Refresh
	for _, d := range k.docs {
		wait = min(wait, time.Until(d.due))
	}
	return wait
}

// take takes in the end of a fetch.
func (k *Keeper) take(url string, d *keyDocument, set *Set, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil && d.failed == nil:
		d.since, d.retry = time.Now(), firstRetry
		k.cfg.Log.Warn("keys of an issuer could not be fetched", "url", url, "error", err, "in_use", inUse(d.text != ""))
	case err == nil && d.failed != nil:
		k.cfg.Log.Info("keys of an issuer are fetched again", "url", url, "after", time.Since(d.since).Round(time.Second))
	}
	wait := k.cfg.Refresh
	if d.failed = err; err == nil {
		d.text = set.Text()
	} else {
		wait, d.retry = d.retry, min(2*d.retry, k.cfg.Refresh)
	}
	d.due = time.Now().Add(jitter(wait))
}

// inUse says what a failure means.
func inUse(kept bool) string {
	if kept {
		return "the keys that were fetched last"
	}
	return "none: tokens of the issuer are refused"
}

// jitter is about d, so that what was asked for at one time is not asked for at one time again.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/10+1))
}

// texts are the documents that there are; missing says that one was never fetched nor kept.
func (k *Keeper) texts() (texts map[string]string, missing bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	texts = make(map[string]string, len(k.docs))
	for url, d := range k.docs {
		if d.text != "" {
			texts[url] = d.text
		} else if d.due.IsZero() {
			missing = true
		}
	}
	return texts, missing
}

// keep writes the documents to disk.
func (k *Keeper) keep(texts map[string]string) {
	if k.cfg.File == "" {
		return
	}
	if err := writeKept(k.cfg.File, texts); err != nil {
		k.cfg.Log.Warn("keys of issuers cannot be kept on disk: after a restart they are fetched before proxies are "+
			"served", "error", err)
	}
}
