package jwks

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
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
	// Patience is how long one that is not there yet is waited for before the others are told
	// without it. Zero means 5s.
	Patience time.Duration
	Log      hclog.Logger
}

// Keeper keeps the documents of some URLs fresh. A document that cannot be got any more is kept as
// it was.
type Keeper struct {
	cfg   KeeperConfig  // set once
	wake  chan struct{} // cap 1; has Run look
	slots chan struct{} // cap maxFetches; one for each fetch

	mu     sync.Mutex
	wanted []string                // guarded by mu: what Want said last
	asked  bool                    // guarded by mu: Want has said it since Run looked
	docs   map[string]*keyDocument // guarded by mu
}

// keyDocument is one document. The Keeper's mu guards it.
type keyDocument struct {
	text   string    // empty: never got
	failed error     // why the latest fetch did not get it
	since  time.Time // of failed: the first of a series
	tried  bool      // a fetch has ended since it is wanted
	stop   func()    // ends the goroutine that fetches it; nil: there is none yet
}

// NewKeeper reads what File holds of an earlier process; what cannot be read is logged, and fetched
// again.
func NewKeeper(c KeeperConfig) *Keeper {
	if c.Refresh == 0 {
		c.Refresh = 20 * time.Minute
	}
	if c.Patience == 0 {
		c.Patience = 5 * time.Second
	}
	k := &Keeper{cfg: c, wake: make(chan struct{}, 1), slots: make(chan struct{}, maxFetches),
		docs: map[string]*keyDocument{}}
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
	k.rouse()
}

// rouse has Run look.
func (k *Keeper) rouse() {
	select {
	case k.wake <- struct{}{}:
	default: // it will already
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
// after each Want once every one of its URLs has a document, has failed to give one, or was waited
// for as long as Patience says. What is given is not changed any more. tell returns when it is
// taken, or ctx has ended.
func (k *Keeper) Run(ctx context.Context, tell func(ctx context.Context, texts map[string]string)) error {
	var fetching sync.WaitGroup
	defer fetching.Wait()
	var told map[string]string
	var owed bool                 // a Want has not been answered
	var deadline <-chan time.Time // when it is, whatever is missing
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-deadline:
			deadline = nil
		case <-k.wake:
			if k.adopt(ctx, &fetching) {
				owed, deadline = true, time.After(k.cfg.Patience)
			}
		}
		texts, missing := k.texts()
		changed := !maps.Equal(texts, told)
		switch {
		case owed && missing && deadline != nil, !owed && !changed:
			continue
		}
		tell(ctx, texts)
		if changed {
			k.keep(texts)
		}
		owed, deadline, told = false, nil, texts
	}
}

// adopt starts and ends fetching as Want said, and reports whether it said anything.
func (k *Keeper) adopt(ctx context.Context, fetching *sync.WaitGroup) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.asked {
		return false
	}
	k.asked = false
	for url, d := range k.docs {
		if !slices.Contains(k.wanted, url) {
			if delete(k.docs, url); d.stop != nil {
				d.stop()
			}
		}
	}
	for _, url := range k.wanted {
		d := k.docs[url]
		if d == nil {
			d = &keyDocument{}
			k.docs[url] = d
		}
		if d.stop == nil {
			var own context.Context
			own, d.stop = context.WithCancel(ctx)
			fetching.Go(func() { k.refresh(own, url, d) })
		}
	}
	return true
}

// refresh fetches a document from time to time until ctx ends.
func (k *Keeper) refresh(ctx context.Context, url string, d *keyDocument) {
	retry := firstRetry
	for {
		select {
		case k.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		set, err := k.cfg.Fetch(ctx, url)
		<-k.slots
		if ctx.Err() != nil {
			return
		}
		k.take(url, d, set, err)
		k.rouse()
		wait := k.cfg.Refresh
		if err != nil {
			wait, retry = retry, min(2*retry, k.cfg.Refresh)
		} else {
			retry = firstRetry
		}
		timer := time.NewTimer(jitter(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// take takes in the end of a fetch.
func (k *Keeper) take(url string, d *keyDocument, set *Set, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil && d.failed == nil:
		d.since = time.Now()
		k.cfg.Log.Warn("keys of an issuer could not be fetched", "url", url, "error", err, "in_use", inUse(d.text != ""))
	case err == nil && d.failed != nil:
		k.cfg.Log.Info("keys of an issuer are fetched again", "url", url, "after", time.Since(d.since).Round(time.Second))
	}
	if d.failed, d.tried = err, true; err == nil {
		d.text = set.Text()
	}
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

// texts are the documents that there are; missing says that one is still to come for the first time.
func (k *Keeper) texts() (texts map[string]string, missing bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	texts = make(map[string]string, len(k.docs))
	for url, d := range k.docs {
		if d.text != "" {
			texts[url] = d.text
		} else if !d.tried {
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
