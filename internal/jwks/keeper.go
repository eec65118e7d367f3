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
	cfg  KeeperConfig // set once
	wake chan struct{}
	done chan fetched

	mu     sync.Mutex
	wanted []string         // guarded by mu: what Want said last
	asked  bool             // guarded by mu: Want has said it since Run looked
	docs   map[string]*kept // guarded by mu; changed by Run alone
}

// kept is one document.
type kept struct {
	text   string        // empty: never got
	failed error         // why the latest fetch did not get it
	since  time.Time     // of failed: the first of a series
	next   time.Time     // when to fetch it
	retry  time.Duration // after the next failure
	busy   bool          // it is being fetched
	tried  bool          // a fetch has ended since it is wanted
}

// fetched is the end of one fetch.
type fetched struct {
	url string
	set *Set
	err error
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
	k := &Keeper{cfg: c, wake: make(chan struct{}, 1), done: make(chan fetched), docs: map[string]*kept{}}
	texts, err := readKept(c.File)
	if err != nil {
		c.Log.Warn("keys of issuers that were kept on disk are not used, and are fetched anew", "error", err)
	}
	for url, text := range texts {
		k.docs[url] = &kept{text: text}
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
	default: // it has word already
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
	look := time.NewTimer(0)
	defer look.Stop()
	var owed bool          // a Want has not been answered
	var until time.Time    // when it is, whatever is missing
	var changed, told bool // since tell was called; tell was ever called
	busy := 0
	for {
		select {
		case <-ctx.Done():
			for ; busy > 0; busy-- {
				<-k.done
			}
			return nil
		case <-k.wake:
			if dropped, asked := k.adopt(); asked {
				owed, until = true, time.Now().Add(k.cfg.Patience)
				changed = changed || dropped
			}
		case f := <-k.done:
			busy--
			changed = k.take(f) || changed
		case <-look.C:
		}
		started, next := k.fetch(ctx, maxFetches-busy)
		busy += started
		if owed && (k.answered() || !time.Now().Before(until)) || changed && !owed {
			tell(ctx, k.texts())
			if changed || !told {
				k.keep()
			}
			owed, changed, told = false, false, true
		}
		if owed {
			next = min(next, max(0, time.Until(until)))
		}
		look.Reset(next)
	}
}

// adopt takes in what Want said. dropped: there was more before.
func (k *Keeper) adopt() (dropped, asked bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.asked {
		return false, false
	}
	k.asked = false
	for url := range k.docs {
		if !slices.Contains(k.wanted, url) {
			delete(k.docs, url)
			dropped = true
		}
	}
	for _, url := range k.wanted {
		if k.docs[url] == nil {
			k.docs[url] = &kept{}
		}
	}
	return dropped, true
}

// fetch starts up to n fetches that are due, and says how many, and when to look again.
func (k *Keeper) fetch(ctx context.Context, n int) (started int, next time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	next = k.cfg.Refresh
	for _, url := range k.wanted {
		d := k.docs[url]
		if d == nil || d.busy {
			continue
		}
		if wait := time.Until(d.next); wait > 0 {
			next = min(next, wait)
			continue
		}
		if started == n {
			continue // the end of another fetch looks again
		}
		started++
		d.busy = true
		go func() {
			set, err := k.cfg.Fetch(ctx, url)
			k.done <- fetched{url, set, err}
		}()
	}
	return started, next
}

// take takes in the end of a fetch, and says whether its document is another one now.
func (k *Keeper) take(f fetched) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.docs[f.url]
	if d == nil {
		return false // nobody wants it any more
	}
	d.busy, d.tried = false, true
	if f.err != nil {
		d.retry = min(max(2*d.retry, firstRetry), k.cfg.Refresh)
		d.next = time.Now().Add(jitter(d.retry))
		if d.failed == nil {
			d.since = time.Now()
			k.cfg.Log.Warn("keys of an issuer could not be fetched", "url", f.url, "error", f.err,
				"in_use", inUse(d.text != ""))
		}
		d.failed = f.err
		return false
	}
	if d.failed != nil {
		k.cfg.Log.Info("keys of an issuer are fetched again", "url", f.url,
			"after", time.Since(d.since).Round(time.Second))
	}
	d.failed, d.retry, d.next = nil, 0, time.Now().Add(jitter(k.cfg.Refresh))
	if d.text == f.set.Text() {
		return false
	}
	d.text = f.set.Text()
	return true
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

// answered says whether nothing that is wanted is still to come for the first time.
func (k *Keeper) answered() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, url := range k.wanted {
		if d := k.docs[url]; d != nil && d.text == "" && !d.tried {
			return false
		}
	}
	return true
}

// texts are the documents that there are.
func (k *Keeper) texts() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make(map[string]string, len(k.docs))
	for url, d := range k.docs {
		if d.text != "" {
			out[url] = d.text
		}
	}
	return out
}

// keep writes the documents to disk.
func (k *Keeper) keep() {
	if k.cfg.File == "" {
		return
	}
	if err := writeKept(k.cfg.File, k.texts()); err != nil {
		k.cfg.Log.Warn("keys of issuers cannot be kept on disk: after a restart they are fetched before proxies are served", "error", err)
	}
}
