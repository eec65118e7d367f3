package agent

import (
	"crypto"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// store keeps the identity on disk in two files of mode 0600: identity.pem has the key, a Joined
// and the chain; roots.pem has the trust bundle. Each file is replaced atomically, roots.pem first,
// so the key and its chain always fit after a crash. Not safe for concurrent use: the holder of the
// state folder's lock writes.
type store struct{ dir string }

// Names below the state folder.
const (
	identityFile = "identity.pem"
	rootsFile    = "roots.pem"
	nextKeyFile  = "next-key.pem"
)

// joinedBlock is the type of the PEM block that holds a Joined as JSON.
const joinedBlock = "ASHORE JOINED"

// Joined records how a workload joined.
type Joined struct {
	// Version is the version of the file format.
	Version int `json:"v"`
	// Group is the WorkloadGroup, "namespace/name".
	Group string `json:"group"`
	// Workload is the name that it joined with, unique in its namespace.
	Workload string `json:"workload"`
	// At is when the workload joined.
	At time.Time `json:"at"`
	// Renewed is when it received its certificate.
	Renewed time.Time `json:"renewed"`
	// Token is the SHA-256 of the join token, in hexadecimal. It shows whether a join command is
	// the same one as before. Empty: unknown.
	Token string `json:"token,omitempty"`
}

// ErrNoIdentity means that a workload has not joined.
var ErrNoIdentity = errors.New("this workload has not joined the mesh: on the control plane run \"ashorectl " +
	"join-token create\", and here the line that it prints; for a trial without identities there is --dev")

// load reads the identity. Errors: ErrNoIdentity, or what is wrong with the files and what to do.
func (s store) load() (id *Identity, j Joined, err error) {
	text, err := readSmall(filepath.Join(s.dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Joined{}, ErrNoIdentity
	}
	var roots []byte
	if err == nil {
		roots, err = readSmall(filepath.Join(s.dir, rootsFile))
	}
	if err == nil {
		id, j, err = decodeIdentity(text, roots)
	}
	if err != nil {
		const remedy = "join again, with a new line of \"ashorectl join-token create\""
		return nil, Joined{}, fmt.Errorf("the identity on disk is not usable: %w; %s", err, remedy)
	}
	return id, j, nil
}

// decodeIdentity reads the two files of an identity.
func decodeIdentity(text, bundle []byte) (*Identity, Joined, error) {
	var j Joined
	key, err := ca.DecodeKey(text)
	if err != nil {
		return nil, j, fmt.Errorf("%s: %w", identityFile, err)
	}
	_, rest := pem.Decode(text) // the key
	block, rest := pem.Decode(rest)
	if block == nil || block.Type != joinedBlock {
		return nil, j, fmt.Errorf("%s: the block %q does not follow the key", identityFile, joinedBlock)
	}
	if err := json.Unmarshal(block.Bytes, &j); err != nil {
		return nil, j, fmt.Errorf("%s: %q: %w", identityFile, joinedBlock, err)
	}
	if j.Version != 1 {
		return nil, j, fmt.Errorf("%s: its form is %d, this agent knows 1", identityFile, j.Version)
	}
	chain, err := ca.DecodeCertificates(rest)
	if err != nil {
		return nil, j, fmt.Errorf("%s: %w", identityFile, err)
	}
	roots, err := parseRoots([]string{string(bundle)})
	if err != nil {
		return nil, j, fmt.Errorf("%s: %w", rootsFile, err)
	}
	id, err := newIdentity(key, chain, roots)
	return id, j, err
}

// maxIdentityFile is the maximum size of one file, in bytes.
const maxIdentityFile = 1 << 20

func readSmall(path string) ([]byte, error) {
	data, _, err := readfile.Read(path, maxIdentityFile)
	return data, err
}

// save replaces the identity. It is durable when save returns.
func (s store) save(id *Identity, j Joined) error {
	text, err := encodeIdentity(id, j)
	if err == nil {
		err = s.write(rootsFile, id.Roots.PEM())
	}
	if err == nil {
		err = s.write(identityFile, text)
	}
	if err != nil {
		return diskError("keep the identity", err)
	}
	return nil
}

func encodeIdentity(id *Identity, j Joined) ([]byte, error) {
	key, err := ca.EncodeKey(id.Key)
	if err != nil {
		return nil, err
	}
	joined, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: joinedBlock, Bytes: joined})
	return slices.Concat(key, block, ca.EncodeCertificates(id.Chain...)), nil
}

// write replaces a file durably.
func (s store) write(name string, data []byte) error {
	if err := wholefile.Write(filepath.Join(s.dir, name), data); err != nil {
		return err
	}
	return wholefile.SyncFolder(s.dir)
}

// remove deletes the identity and the key of a pending request.
func (s store) remove() error {
	var errs []error
	for _, name := range []string{identityFile, rootsFile, nextKeyFile} {
		errs = append(errs, wholefile.Remove(filepath.Join(s.dir, name)))
	}
	return errors.Join(append(errs, wholefile.SyncFolder(s.dir))...)
}

// nextKey returns the key for the next certificate request. It is on disk before the request is
// sent, so that a request whose answer was lost can be repeated: the authority gives the same key
// the same answer.
func (s store) nextKey() (crypto.Signer, error) {
	path := filepath.Join(s.dir, nextKeyFile)
	if text, err := readSmall(path); err == nil {
		if key, err := ca.DecodeKey(text); err == nil {
			return key, nil
		} // replace an unreadable one
	}
	key := ca.NewKey()
	text, err := ca.EncodeKey(key)
	if err != nil {
		return nil, err
	}
	if err := s.write(nextKeyFile, text); err != nil {
		return nil, diskError("keep the new key", err)
	}
	return key, nil
}

// forgetKey deletes the key that nextKey returned.
func (s store) forgetKey() error { return wholefile.Remove(filepath.Join(s.dir, nextKeyFile)) }
