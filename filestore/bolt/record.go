package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// schema is the version of the layout below. A file with any other version is refused.
const schema = 4

// The buckets, and the records of the first one.
const (
	bucketMeta    = "meta"
	bucketObjects = "objects" // object key -> objectRecord
	bucketHistory = "history" // object key, NUL, write -> nothing: the writes of one object
	bucketWrites  = "writes"  // write -> writeRecord, the oldest first
	bucketGroups  = "groups"  // set, NUL, name -> content: those of feed.Store
	bucketRecords = "records" // see recordKey -> version, value: those of record.Store

	metaSchema   = "schema"   // decimal, plain
	metaRevision = "revision" // of the last write of objects, 8 bytes
	metaTotal    = "total"    // a total over all records of the other buckets, and of metaRevision
)

// buckets are those whose records the total covers.
func buckets() []string {
	return []string{bucketObjects, bucketHistory, bucketWrites, bucketGroups, bucketRecords}
}

// sumSize is the length of the checksum in front of every record.
const sumSize = 8

// sum is the checksum of one record. It covers the key and the bucket's name, so a record that turns up
// elsewhere is noticed.
func sum(bucket string, key, value []byte) uint64 {
	h := sha256.New()
	var n [8]byte
	for _, part := range [][]byte{[]byte(bucket), key, value} {
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// unseal checks and removes the checksum of a record.
func unseal(bucket string, key, record []byte) ([]byte, error) {
	if len(record) < sumSize || binary.BigEndian.Uint64(record) != sum(bucket, key, record[sumSize:]) {
		return nil, fmt.Errorf("the checksum of record %q in %s is wrong", key, bucket)
	}
	return record[sumSize:], nil
}

// tx is a transaction that reads and writes records with their checksums and keeps the total of the
// records of the whole file, so that a lost record is noticed.
type tx struct {
	*bbolt.Tx
	count, total uint64
}

// begin reads the total.
func begin(btx *bbolt.Tx) (*tx, error) {
	t := &tx{Tx: btx}
	meta := btx.Bucket([]byte(bucketMeta))
	if meta == nil {
		return nil, errors.New("it is not a store of Ashore: there is no bucket " + bucketMeta)
	}
	for _, name := range buckets() {
		if btx.Bucket([]byte(name)) == nil {
			return nil, fmt.Errorf("there is no bucket %s", name)
		}
	}
	v, err := t.get(bucketMeta, []byte(metaTotal))
	if err != nil {
		return nil, err
	}
	if len(v) != 16 {
		return nil, errors.New("the total of all records is missing")
	}
	t.count, t.total = binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:])
	return t, nil
}

// end writes the total.
func (t *tx) end() error {
	v := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, t.count), t.total)
	return t.write(bucketMeta, []byte(metaTotal), v)
}

// get returns a value, nil when there is none. It is valid until the transaction ends.
func (t *tx) get(bucket string, key []byte) ([]byte, error) {
	record := t.Bucket([]byte(bucket)).Get(key)
	if record == nil {
		return nil, nil
	}
	return unseal(bucket, key, record)
}

func (t *tx) put(bucket string, key, value []byte) error {
	old, err := t.get(bucket, key)
	if err != nil {
		return err
	}
	if old != nil {
		t.count--
		t.total ^= sum(bucket, key, old)
	}
	t.count++
	t.total ^= sum(bucket, key, value)
	return t.write(bucket, key, value)
}

func (t *tx) write(bucket string, key, value []byte) error {
	record := binary.BigEndian.AppendUint64(make([]byte, 0, sumSize+len(value)), sum(bucket, key, value))
	return t.Bucket([]byte(bucket)).Put(key, append(record, value...))
}

func (t *tx) delete(bucket string, key []byte) error {
	old, err := t.get(bucket, key)
	if err != nil || old == nil {
		return err
	}
	t.count--
	t.total ^= sum(bucket, key, old)
	return t.Bucket([]byte(bucket)).Delete(key)
}

// scan calls f for the records whose keys begin with prefix, in their order.
func (t *tx) scan(bucket string, prefix []byte, f func(key, value []byte) error) error {
	c := t.Bucket([]byte(bucket)).Cursor()
	for k, record := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, record = c.Next() {
		v, err := unseal(bucket, k, record)
		if err != nil {
			return err
		}
		if err := f(k, v); err != nil {
			return err
		}
	}
	return nil
}

// keys lists the keys that begin with prefix, in their order.
func (t *tx) keys(bucket string, prefix []byte) [][]byte {
	var out [][]byte
	c := t.Bucket([]byte(bucket)).Cursor()
	for k, _ := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		out = append(out, bytes.Clone(k))
	}
	return out
}

// revision is that of the last write of objects.
func (t *tx) revision() (uint64, error) {
	v, err := t.get(bucketMeta, []byte(metaRevision))
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, errors.New("the revision is missing")
	}
	return binary.BigEndian.Uint64(v), nil
}

// initialise lays out an empty store.
func initialise(btx *bbolt.Tx) error {
	for _, name := range append(buckets(), bucketMeta) {
		if _, err := btx.CreateBucket([]byte(name)); err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	meta := btx.Bucket([]byte(bucketMeta))
	if err := meta.Put([]byte(metaSchema), fmt.Append(nil, schema)); err != nil {
		return err
	}
	t := &tx{Tx: btx}
	if err := t.put(bucketMeta, []byte(metaRevision), make([]byte, 8)); err != nil {
		return err
	}
	return t.end()
}

// checkRecords checks every record and the total of all.
func checkRecords(btx *bbolt.Tx) error {
	err := checkSchema(btx)
	if errors.Is(err, ErrSchema) {
		return nil // the layout is unknown here; New returns the error
	}
	if err != nil {
		return err
	}
	t, err := begin(btx)
	if err != nil {
		return err
	}
	revision, err := t.get(bucketMeta, []byte(metaRevision))
	if err != nil {
		return err
	}
	count, total := uint64(1), sum(bucketMeta, []byte(metaRevision), revision)
	for _, name := range buckets() {
		err := t.scan(name, nil, func(k, v []byte) error {
			count++
			total ^= sum(name, k, v)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if count != t.count || total != t.total {
		return fmt.Errorf("records are missing or old: there are %d, and should be %d", count, t.count)
	}
	return nil
}

// checkSchema returns nil when the file has the layout of this release. Errors: ErrSchema.
func checkSchema(btx *bbolt.Tx) error {
	meta := btx.Bucket([]byte(bucketMeta))
	if meta == nil {
		return errors.New("it is not a store of Ashore: there is no bucket " + bucketMeta)
	}
	var found int
	text := string(meta.Get([]byte(metaSchema)))
	if _, err := fmt.Sscan(text, &found); err != nil || found < 1 {
		return fmt.Errorf("its schema version %q is not a number", text)
	}
	if found != schema {
		return fmt.Errorf("it has schema version %d and this release reads version %d: %w; "+
			"run that release again, or restore a backup of this release", found, schema, ErrSchema)
	}
	return nil
}
