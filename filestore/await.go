package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// A folder that is waited for (Config.Await) was never read by anybody: nothing of it is known, and nothing is said of it
// until it is there, besides why it is not. An empty one may be the place where its disk is mounted.

// errBare says that a folder can be read, and has nothing in it.
var errBare = errors.New("it holds no file of configuration")

// startWhenThere is start, once there is something to read where the folder is waited for. False: ctx ended.
func (f *folder) startWhenThere(ctx context.Context, out chan<- feed.Batch[*config.Object]) (bool, error) {
	var was error // looked at before: what changes while it is read and told is not missed
	if f.src.cfg.Await {
		was = f.src.bare()
	}
	err := f.start(ctx)
	if err == nil || !f.src.cfg.Await {
		return true, err
	}
	f.awaited = true
	for told := ""; err != nil; was, err = f.src.bare(), f.start(ctx) {
		if ctx.Err() != nil {
			return false, nil
		}
		if text := err.Error(); text != told {
			told = text
			if !f.tellAwaited(ctx, out, text) {
				return false, nil
			}
		}
		if !f.await(ctx, was) {
			return false, nil
		}
	}
	return true, nil
}

// tellAwaited tells why there is nothing to read; false: ctx ended.
func (f *folder) tellAwaited(ctx context.Context, out chan<- feed.Batch[*config.Object], text string) bool {
	if f.awaitedSince.IsZero() {
		f.awaitedSince = time.Now()
	}
	f.src.cfg.Log.Warn("nothing to read yet: it is looked for again and again", "folder", f.src.cfg.Dir, "problem", text)
	select {
	case <-ctx.Done():
		return false
	case out <- feed.Batch[*config.Object]{Source: f.src.name, Standing: &feed.Standing{Error: text, Since: f.awaitedSince}}:
		return true
	}
}

// await waits until there is something to read, or to say anew, other than was; false: ctx ended. The kernel tells nobody of what
// is mounted, so it looks each second too.
func (f *folder) await(ctx context.Context, was error) bool {
	look := time.NewTimer(min(rescanSoon, f.src.cfg.Rescan))
	defer look.Stop()
	for soon := false; ; {
		select {
		case <-ctx.Done():
			return false
		case e := <-f.watch.events():
			if _, inside := within(f.src.cfg.Dir, e.Name); !soon && (inside || e.Name == f.src.cfg.Dir) {
				soon = true
				look.Reset(f.src.cfg.Settle) // more may come with it
			}
			continue
		case <-f.watch.errors():
			continue // it is looked anyway
		case <-look.C:
		}
		if is := f.src.bare(); is == nil || was == nil || is.Error() != was.Error() {
			return true
		}
		f.watchAround()
		soon = false
		look.Reset(min(rescanSoon, f.src.cfg.Rescan))
	}
}

// bare is why there is nothing to read; nil: there is something.
func (s *Source) bare() error {
	return bareListing(scan(s.cfg.Dir, s.cfg.FollowSymlinks, s.cfg.maxEntries, func(string, stamp) {}))
}

// bareListing is the same of a folder that was scanned.
func bareListing(l *listing) error {
	if err := l.failed["."]; err != nil {
		return err
	}
	if len(l.files) == 0 && len(l.failed) == 0 {
		return errBare
	}
	return nil
}

// watchAround watches the folder around, in which the folder's own coming and going shows.
func (f *folder) watchAround() {
	parent := filepath.Dir(f.src.cfg.Dir)
	if info, err := os.Stat(parent); err == nil {
		f.watch.add(parent, stampOf(info))
	}
}

// awaitedText is what operators are told of a folder that has nothing to read and is waited for.
func (s *Source) awaitedText(why, loadErr error) error {
	var text error
	var path *fs.PathError
	if errors.As(why, &path) {
		why = path.Err // the text has the path
	}
	switch {
	case errors.Is(why, errBare):
		text = fmt.Errorf("the folder of configuration %s holds no file, and none of it was read before: nothing of it is in use; see that its disk is mounted, or put a file there, one with a comment alone will do", s.cfg.Dir)
	case errors.Is(why, fs.ErrNotExist):
		text = fmt.Errorf("there is no folder of configuration %s (%w), and none of it was read before: nothing of it is in use; see that its disk is mounted, or make the folder and put a file there", s.cfg.Dir, why)
	default:
		text = fmt.Errorf("the folder of configuration %s cannot be read (%w), and none of it was read before: nothing of it is in use; make it a folder that this user can read", s.cfg.Dir, why)
	}
	if loadErr != nil {
		return fmt.Errorf("%w; what may have been kept of it cannot be read either (%w)", text, loadErr)
	}
	return text
}

// stands is how the source stands when it sends its first content; nil: nothing else was ever said.
func (f *folder) stands() *feed.Standing {
	if !f.awaited {
		return nil
	}
	return &feed.Standing{Since: time.Now()}
}
