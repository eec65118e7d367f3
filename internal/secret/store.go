package secret

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// ErrNotFound means that the store has no such secret.
var ErrNotFound = errors.New("the store has no such secret")

// table has the secrets of the store: records "namespace/name", encrypted.
const table = "secret"

// store keeps encrypted secrets as records.
type store struct {
	records record.Store
	keyFile string // has the key in hexadecimal digits
}

// put encrypts a secret and writes it. Errors: ErrInvalid if it is too large.
func (s store) put(ctx context.Context, n Name, value Secret) error {
	aead, err := s.cipher(ctx, true)
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	sealed := aead.Seal(nil, nil, text, []byte(n.String()))
	if len(sealed) > record.MaxValue {
		return fmt.Errorf("%w: encrypted it has %d bytes, and the store takes %d: put its files into the folder of secrets "+
			"(setting secrets.dir)", ErrInvalid, len(sealed), record.MaxValue)
	}
	return s.records.Commit(ctx, record.Write{Key: record.Key{Table: table, Name: n.String()}, Value: sealed,
		Version: record.Any})
}

// remove deletes a secret. Errors: ErrNotFound.
func (s store) remove(ctx context.Context, n Name) error {
	r, err := s.records.Get(ctx, record.Key{Table: table, Name: n.String()})
	switch {
	case err != nil:
		return err
	case r.Version == "":
		return fmt.Errorf("%s: %w", n, ErrNotFound)
	}
	return s.records.Commit(ctx, record.Write{Key: r.Key, Version: r.Version})
}

// read reads and decrypts all secrets.
func (s store) read(ctx context.Context) found {
	list, err := s.records.List(ctx, table)
	if err != nil {
		return found{err: err}
	}
	out := newFound()
	if len(list) == 0 {
		return out
	}
	aead, err := s.cipher(ctx, false)
	if err != nil {
		return found{err: err}
	}
	for _, r := range list {
		namespace, name, _ := strings.Cut(r.Name, "/")
		n := Name{namespace, name}
		text, err := aead.Open(nil, nil, r.Value, []byte(r.Name))
		if err != nil {
			out.failed[n] = fmt.Errorf("it was encrypted with another key than that of %s: create the secret again, "+
				"or copy the file from the replica that has it", s.keyFile)
			continue
		}
		var v Secret
		if json.Unmarshal(text, &v) != nil { // its text could quote the key
			out.failed[n] = errors.New("this release cannot read it: create the secret again")
			continue
		}
		out.secrets[n] = v
	}
	return out
}

// cipher returns the cipher of the store. The key is made when the first secret is created.
func (s store) cipher(ctx context.Context, create bool) (cipher.AEAD, error) {
	text, _, err := readfile.Read(s.keyFile, 1<<10)
	if errors.Is(err, fs.ErrNotExist) && create {
		var list []record.Record
		if list, err = s.records.List(ctx, table); err == nil && len(list) == 0 {
			text, err = s.makeKey()
		} else if err == nil {
			err = fs.ErrNotExist
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no %s, with which the secrets of the store are encrypted: "+
			"copy the file from the replica that created them", s.keyFile)
	}
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("%s is damaged: want %d hexadecimal digits", s.keyFile, 2*keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// keySize is the size of the key, in bytes: AES-256.
const keySize = 32

// makeKey makes the key, and returns the content of its file.
func (s store) makeKey() ([]byte, error) {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // it never fails
	text := []byte(hex.EncodeToString(key) + "\n")
	if err := wholefile.Write(s.keyFile, text); err != nil {
		return nil, err
	}
	return text, wholefile.SyncFolder(filepath.Dir(s.keyFile))
}
