package agent

import (
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// store keeps the identity on disk: the folder "identity" is a symbolic link to a folder that is never changed once it
// has that name, so that a reader sees one key with its own chain and roots, whenever the machine stops. Everything in
// it has mode 0600. Not safe for concurrent use: the holder of the state folder's lock writes.
type store struct{ dir string }

// Names below the state folder.
const (
	identityLink   = "identity"    // points to a folder identity.N
	identityPrefix = "identity."   // the folders
	keyFile        = "key.pem"     // in one of them
	chainFile      = "chain.pem"   // in one of them
	rootsFile      = "roots.pem"   // in one of them
	joinedFile     = "joined.json" // in one of them
	nextKeyFile    = "next-key.pem"
)

// Joined is what is remembered of how the identity came.
type Joined struct {
	// Version is that of this file's form.
	Version int `json:"v"`
	// Group is the WorkloadGroup, "namespace/name".
	Group string `json:"group"`
	// Workload is the name that it joined by, unique in its namespace.
	Workload string `json:"workload"`
	// At is when the workload joined.
	At time.Time `json:"at"`
	// Renewed is when the certificate came last.
	Renewed time.Time `json:"renewed"`
	// Token is the SHA-256 of the token that it joined with, hexadecimal: it tells the same command from another one. Empty: unknown.
	Token string `json:"token,omitempty"`
}

// ErrNoIdentity is that a workload has not joined.
var ErrNoIdentity = errors.New("this workload has not joined the mesh: on the control plane run \"ashorectl join-token create\", and here the line that it prints; for a trial without identities there is --dev")

// load returns the identity. Errors: ErrNoIdentity, or what is wrong with the files and what to do.
func (s store) load() (*Identity, Joined, error) {
	var id *Identity
	var j Joined
	var err error
	for range 3 { // the folder that the link points to may be replaced and removed while it is read
		var name string
		if name, err = os.Readlink(filepath.Join(s.dir, identityLink)); errors.Is(err, fs.ErrNotExist) {
			return nil, Joined{}, ErrNoIdentity
		}
		if err == nil {
			id, j, err = s.read(filepath.Join(s.dir, filepath.Base(name)))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, Joined{}, fmt.Errorf("the identity on disk is not usable: %w; join again, with a new line of \"ashorectl join-token create\"", err)
	}
	return id, j, nil
}

// read reads one folder.
func (s store) read(dir string) (*Identity, Joined, error) {
	files := map[string][]byte{}
	for _, name := range []string{keyFile, chainFile, rootsFile, joinedFile} {
		data, err := readSmall(filepath.Join(dir, name))
		if err != nil {
			return nil, Joined{}, err
		}
		files[name] = data
	}
	key, err := ca.DecodeKey(files[keyFile])
	if err != nil {
		return nil, Joined{}, fmt.Errorf("%s: %w", keyFile, err)
	}
	chain, err := ca.DecodeCertificates(files[chainFile])
	if err != nil {
		return nil, Joined{}, fmt.Errorf("%s: %w", chainFile, err)
	}
	roots, err := parseRoots([]string{string(files[rootsFile])})
	if err != nil {
		return nil, Joined{}, fmt.Errorf("%s: %w", rootsFile, err)
	}
	var j Joined
	if err := json.Unmarshal(files[joinedFile], &j); err != nil {
		return nil, Joined{}, fmt.Errorf("%s: %w", joinedFile, err)
	}
	if j.Version != 1 {
		return nil, Joined{}, fmt.Errorf("%s: its form is %d, this agent knows 1", joinedFile, j.Version)
	}
	id, err := newIdentity(key, chain, roots)
	return id, j, err
}

// maxIdentityFile bounds what is read of one file.
const maxIdentityFile = 1 << 20

func readSmall(path string) ([]byte, error) {
	data, _, err := readfile.Read(path, maxIdentityFile)
	return data, err
}

// save replaces the identity: all of it or nothing. Afterwards it survives a power failure.
func (s store) save(id *Identity, j Joined) error {
	if err := s.swap(id, j); err != nil {
		return diskError("keep the identity", err)
	}
	return nil
}

func (s store) swap(id *Identity, j Joined) (err error) {
	old, err := os.Readlink(filepath.Join(s.dir, identityLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	name, err := s.freeName(old)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := fill(dir, id, j); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	link := filepath.Join(s.dir, identityLink+".new")
	if err := errors.Join(removeMissing(link), os.Symlink(name, link)); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err := os.Rename(link, filepath.Join(s.dir, identityLink)); err != nil {
		return errors.Join(err, os.RemoveAll(dir), os.Remove(link))
	}
	return errors.Join(wholefile.SyncFolder(s.dir), s.clean())
}

// freeName is that of a folder that is not there, after old.
func (s store) freeName(old string) (string, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(old, identityPrefix))
	if err != nil {
		n = 0 // there is no old one, or it has a name that somebody else gave it
	}
	for {
		n++
		name := identityPrefix + strconv.Itoa(n)
		_, err := os.Lstat(filepath.Join(s.dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil
		case err != nil:
			return "", err
		}
	}
}

// fill writes the files of an identity and makes them durable.
func fill(dir string, id *Identity, j Joined) error {
	key, err := ca.EncodeKey(id.Key)
	if err != nil {
		return err
	}
	joined, err := json.Marshal(j)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		keyFile: key, chainFile: ca.EncodeCertificates(id.Chain...), rootsFile: ca.EncodeCertificates(id.Roots...), joinedFile: append(joined, '\n'),
	} {
		if err := wholefile.Write(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}
	return wholefile.SyncFolder(dir)
}

// clean removes folders that nothing points to: of earlier identities, and of saves that were cut short.
func (s store) clean() error {
	current, err := os.Readlink(filepath.Join(s.dir, identityLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if _, err := strconv.Atoi(strings.TrimPrefix(e.Name(), identityPrefix)); err == nil && e.IsDir() && e.Name() != current && strings.HasPrefix(e.Name(), identityPrefix) {
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// remove forgets the identity and the key of a request under way.
func (s store) remove() error {
	return errors.Join(removeMissing(filepath.Join(s.dir, identityLink)), s.forgetKey(), s.clean(), wholefile.SyncFolder(s.dir))
}

// nextKey is the key that a certificate is asked for with. It is on disk before anybody sees a request for it, so that
// a request whose answer was lost can be repeated: the authority gives one key the same answer again.
func (s store) nextKey() (crypto.Signer, error) {
	path := filepath.Join(s.dir, nextKeyFile)
	if text, err := readSmall(path); err == nil {
		if key, err := ca.DecodeKey(text); err == nil {
			return key, nil
		} // a broken one is of no use to anybody
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	text, err := ca.EncodeKey(key)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(wholefile.Write(path, text), wholefile.SyncFolder(s.dir)); err != nil {
		return nil, diskError("keep the new key", err)
	}
	return key, nil
}

// forgetKey ends the use of the key that nextKey gave.
func (s store) forgetKey() error { return removeMissing(filepath.Join(s.dir, nextKeyFile)) }

func removeMissing(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
