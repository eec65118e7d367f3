package bolt

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/ashore-mesh/ashore/internal/record"
)

// AllRecords returns the records of all tables.
func (s *Store) AllRecords(ctx context.Context) ([]record.Record, error) {
	var out []record.Record
	err := s.view(ctx, func(t *tx) error {
		return t.scan(bucketRecords, nil, func(k, v []byte) error {
			if string(k) == string(versionKey()) {
				return nil
			}
			key, err := parseRecordKey(k)
			if err != nil {
				return err
			}
			r := record.Record{Key: key}
			r.Value, r.Version, err = parseRecord(v)
			out = append(out, r)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// parseRecordKey is the inverse of recordKey.
func parseRecordKey(k []byte) (record.Key, error) {
	n, size := binary.Uvarint(k)
	if size <= 0 || n > uint64(len(k)-size) {
		return record.Key{}, errors.New("not the key of a record")
	}
	return record.Key{Table: string(k[size : size+int(n)]), Name: string(k[size+int(n):])}, nil
}
