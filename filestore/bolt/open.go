package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// schema is the version of the layout. A file with another version is refused.
const schema = "6"

// The buckets.
var (
	bucketMeta    = []byte("meta")
	bucketObjects = []byte("objects") // objectKey: an encoded object; the sequence is the latest revision
	bucketHistory = []byte("history") // historyKey: storage.PastWrite; the sequence is the size in bytes
	bucketGroups  = []byte("groups")  // set, NUL, name: content
	bucketRecords = []byte("records") // recordKey: version, value; the sequence is the latest version

	keySchema = []byte("schema")
)

// checkTimeout bounds the check of a file, which a damaged one may keep busy for ever.
const checkTimeout = time.Minute

// open opens the file, creates it if it is missing, and loads the objects.
func (s *Store) open(unclean bool) (err error) {
	_, err = os.Stat(s.path)
	if unclean && err == nil && len(s.cfg.CheckCommand) > 0 {
		if err := s.checkFile(); err != nil {
			return err
		}
	}
	if err := s.openFile(); err != nil {
		return err
	}
	if err := s.lock.mark(running); err != nil {
		return errors.Join(explain(fmt.Errorf("mark the store as open: %w", err)), s.db.Close())
	}
	return nil
}

// openFile opens the file with bbolt.
func (s *Store) openFile() (err error) {
	// A damaged file makes bbolt panic, or read memory beyond the end of the file.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = s.damaged(fmt.Errorf("%v", v))
		}
		if err != nil && s.db != nil {
			err = errors.Join(err, s.db.Close())
		} else if err != nil && s.file != nil {
			// Often closed already. After a panic bbolt's mapping still holds its lock.
			_ = unix.Flock(int(s.file.Fd()), unix.LOCK_UN)
			_ = s.file.Close()
		}
	}()
	s.db, err = bbolt.Open(s.path, 0o600, &bbolt.Options{
		Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, flag, mode)
			s.file = f
			return f, err
		},
	})
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		return explain(fmt.Errorf("open the store: %w", err))
	case errors.Is(err, bbolterrors.ErrTimeout):
		return fmt.Errorf("%s is %w: stop the program that reads it", s.path, ErrInUse)
	case err != nil:
		return s.damaged(err)
	}
	if err := s.file.Chmod(0o600); err != nil { // a backup may have another mode
		return fmt.Errorf("close the store to other users: %w", err)
	}
	if err := s.prepare(); err != nil {
		return err
	}
	if err := s.db.View(s.load); err != nil {
		return s.damaged(err)
	}
	return nil
}

// prepare creates the buckets of a new file, and checks the layout of another.
func (s *Store) prepare() error {
	isNew := false
	err := s.db.View(func(tx *bbolt.Tx) error {
		first, _ := tx.Cursor().First()
		isNew = first == nil
		return nil
	})
	if err == nil && isNew {
		if err = s.db.Update(createBuckets); err == nil {
			err = wholefile.SyncFolder(filepath.Dir(s.path))
		}
	}
	if err != nil {
		return explain(fmt.Errorf("create the store %s: %w", s.path, err))
	}
	return s.db.View(s.checkLayout)
}

func createBuckets(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketObjects, bucketHistory, bucketGroups, bucketRecords} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketMeta).Put(keySchema, []byte(schema))
}

// checkLayout returns an error unless this release wrote the file. Errors: ErrSchema.
func (s *Store) checkLayout(tx *bbolt.Tx) error {
	var version []byte
	if meta := tx.Bucket(bucketMeta); meta != nil {
		version = meta.Get(keySchema)
	}
	if string(version) != schema {
		return fmt.Errorf("%s has layout %q and this release reads %q: %w; run that release, or move the file away: %s",
			s.path, version, schema, ErrSchema, s.cfg.Lost)
	}
	return nil
}

// damaged returns the error for a file that cannot be read.
func (s *Store) damaged(cause error) error {
	return fmt.Errorf("%s is %w (%w). Nothing was written to it. Move the file away, put a backup in its place "+
		"and start ashored again. Without a backup \"ashored init\" makes a new file: %s", s.path, ErrDamaged, cause, s.cfg.Lost)
}

// checkFile runs CheckCommand.
func (s *Store) checkFile() error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	argv := append(slices.Clone(s.cfg.CheckCommand), s.path)
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return s.damaged(fmt.Errorf("its check took longer than %s", checkTimeout))
	case errors.As(err, &exit):
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return s.damaged(fmt.Errorf("its check: %s: %s", exit, first))
	case err != nil:
		return fmt.Errorf("check %s: %w", s.path, err)
	}
	s.cfg.Log.Info("store checked after an unclean stop", "path", s.path, "took", time.Since(start))
	return nil
}

// Check reads the structure of a file and returns the first defect. It writes nothing. A damaged
// file may crash the process.
func Check(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		var first error
		for err := range tx.Check() {
			if first == nil {
				first = err
			}
		}
		return first
	})
	return errors.Join(err, db.Close())
}
