package ca

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// The files of a folder of keys. Those with a key hold its certificate too, and are readable by
// their owner alone.
const (
	rootFile         = "root-key.pem"
	nextRootFile     = "next-root-key.pem" // while a rotation goes on
	intermediateFile = "intermediate-key.pem"
	rootsFile        = "root-cert.pem" // a copy of what is trusted, for people
)

const (
	// rootLife is how long a root lives.
	rootLife = 10 * 365 * 24 * time.Hour
	// intermediateLife is how long an intermediate lives. It is renewed at half of that.
	intermediateLife = 30 * 24 * time.Hour
)

// selfSigned is an authority with a root of its own. Its roots and the state of a rotation stand in
// the records, where all replicas see them; keys stand in its folder alone. What signs is an
// intermediate of this replica.
type selfSigned struct {
	dir         folder
	records     stateStore
	trustDomain string
	log         hclog.Logger
	audit       func(audit.Event)
	facts       func(context.Context) (Facts, error)

	state   State
	version string
	keys    map[string]*pair // of roots, by id: those at hand
	inter   *pair
	signer  *Signer
	bundle  *Bundle
	// keyless is what to tell while the key of the root that signs is not here; else empty.
	keyless string
	// replicas is what it needs to be one of several; nil: it is alone.
	replicas *replicaClient
}

// current implements authority.
func (s *selfSigned) current() (*Signer, *Bundle) { return s.signer, s.bundle }

// start finds the roots again, or makes the first one. It never makes a root when the records or
// the files know of one that is not there: nobody would trust what it signs.
func (s *selfSigned) start(ctx context.Context, now time.Time) error {
	if err := s.dir.open(); err != nil {
		return err
	}
	if err := s.load(); err != nil {
		return err
	}
	_, version, err := s.records.read(ctx)
	if err == nil && version == "" {
		err = s.first(ctx, now)
	}
	if err != nil {
		return err
	}
	return s.refresh(ctx, now)
}

// load reads the keys of the folder.
func (s *selfSigned) load() error {
	s.keys = map[string]*pair{}
	for _, name := range []string{rootFile, nextRootFile} {
		p, err := s.dir.pair(name)
		switch {
		case err != nil:
			return fmt.Errorf("%w; restore the file from a backup: without it nothing new can be signed once the "+
				"intermediate ends", err)
		case p != nil:
			s.keys[RootID(p.cert)] = p
		}
	}
	p, err := s.dir.pair(intermediateFile)
	if err != nil { // a new one is as good: leaves bring the one that signed them along
		s.log.Warn("the intermediate cannot be read; a new one is made", "error", err)
	}
	s.inter = p
	return nil
}

// first has the records know of the folder's root, or of a new one when nothing is there at all.
func (s *selfSigned) first(ctx context.Context, now time.Time) error {
	root, err := s.folderRoot(ctx)
	if err != nil {
		return err
	}
	fresh := root == nil
	switch {
	case !fresh:
		s.log.Warn("the records know of no root; the one of the folder is taken", "root", RootID(root.cert),
			"file", s.dir.at(rootFile))
	case s.replicas != nil && s.replicas.tokenFile != "":
		return fmt.Errorf("%w: %w", ErrReplica, s.replicas.tokenError(errors.New("it says that this mesh has a root, "+
			"and the store knows of none: start the replica first whose token it is, and see that the setting store is "+
			"the same there; without ca.replicaToken this one begins a mesh of its own")))
	default:
		if root, err = s.makeRoot(rootFile, now); err != nil {
			return err
		}
	}
	id := RootID(root.cert)
	st := State{Format: 1, Since: now.UTC(), Active: id, Roots: map[string][]byte{id: root.cert.Raw}}
	err = s.records.write(ctx, st, "")
	if errors.Is(err, record.ErrConflict) && fresh { // another replica was first: its root counts
		delete(s.keys, id)
		return s.dir.remove(rootFile)
	}
	if err == nil && fresh {
		s.loaded("root", root.cert, root.cert)
	}
	return err
}

// folderRoot is the root of the folder; nil when there is none. Errors: something tells of a root
// that is not there, or not the one in the folder.
func (s *selfSigned) folderRoot(ctx context.Context) (*pair, error) {
	const again = "or move the whole state folder aside to begin anew: every workload has to join again then"
	wasPlugged, err := s.records.records.Get(ctx, pluggedRecord())
	if err != nil {
		return nil, err
	}
	if wasPlugged.Version != "" {
		return nil, errors.New("the records say that this mesh trusts a plugged-in root, and a root of its own would " +
			"strand every workload: name the folder of the four files again, " + again)
	}
	root, err := s.dir.pair(rootFile)
	switch {
	case err != nil:
		return nil, err
	case root != nil && s.inter != nil && s.inter.cert.CheckSignatureFrom(root.cert) != nil:
		return nil, fmt.Errorf("%s is not signed by the root in %s, and the records know of no root: restore the "+
			"store and the folder from the same backup", s.dir.at(intermediateFile), s.dir.at(rootFile))
	case root != nil:
		return root, nil
	}
	for _, name := range []string{nextRootFile, intermediateFile, rootsFile} {
		if s.dir.has(name) {
			return nil, fmt.Errorf("%s says that there was a root, and neither %s nor the records have it: restore both "+
				"from a backup, %s", s.dir.at(name), s.dir.at(rootFile), again)
		}
	}
	return nil, nil
}

// makeRoot makes a root and keeps it.
func (s *selfSigned) makeRoot(name string, now time.Time) (*pair, error) {
	key := NewKey()
	root, err := NewRoot("Ashore root of "+s.trustDomain, rootLife, key, now)
	if err != nil {
		return nil, err
	}
	p := &pair{key: key, cert: root.Cert}
	if err := s.dir.writePair(name, p); err != nil {
		return nil, err
	}
	s.keys[RootID(p.cert)] = p
	return p, nil
}

// look implements authority.
func (s *selfSigned) look(ctx context.Context, now time.Time) error {
	for {
		if err := s.refresh(ctx, now); err != nil || s.state.Step == None {
			return err
		}
		facts, err := s.facts(ctx)
		if err != nil {
			return err
		}
		if done, err := s.advance(ctx, facts, now); err != nil || !done {
			return err
		}
	}
}

// refresh has signer and bundle be what the records say, and renews the intermediate.
func (s *selfSigned) refresh(ctx context.Context, now time.Time) error {
	st, version, err := s.records.read(ctx)
	switch {
	case err != nil:
		return err
	case version == "":
		return errors.New("the records do not know the mesh's root any more: restore the store from a backup")
	}
	bundle, err := st.bundle()
	if err != nil {
		return err
	}
	s.state, s.version = st, version
	if s.bundle == nil || s.bundle.ID != bundle.ID {
		s.bundle = bundle
		if err := wholefile.Write(s.dir.at(rootsFile), bundle.PEM()); err != nil {
			s.log.Warn("the copy of the roots for people is old", "error", err)
		}
	}
	if err := s.tidy(); err != nil {
		return err
	}
	return s.sign(ctx, now)
}

// tidy has the folder hold one root after a rotation: its key takes the place of the old one's.
func (s *selfSigned) tidy() error {
	if s.state.Step != None || !s.dir.has(nextRootFile) {
		return nil
	}
	p, err := s.dir.pair(nextRootFile)
	if err != nil || RootID(p.cert) != s.state.Active {
		return err // one that was made and never recorded is used by the next rotation
	}
	return s.dir.rename(nextRootFile, rootFile)
}

// sign has the signer be this replica's intermediate, below the active root where that is possible.
func (s *selfSigned) sign(ctx context.Context, now time.Time) error {
	active, err := s.state.root(s.state.Active)
	if err != nil {
		return err
	}
	inter, root, err := s.intermediate(ctx, active, now)
	if err != nil {
		return err
	}
	var chain []*x509.Certificate
	if s.state.Step == StepActivate && root == active && len(s.state.Cross) > 0 {
		cross, err := x509.ParseCertificate(s.state.Cross)
		if err != nil {
			return fmt.Errorf("the cross-signed root in the records: %w", err)
		}
		if now.Before(cross.NotAfter) {
			chain = append(chain, cross)
		}
	}
	signer, err := NewSigner(inter.cert, inter.key, chain, root, now)
	if err != nil {
		return err
	}
	if s.signer == nil || !s.signer.Cert.Equal(signer.Cert) ||
		len(s.signer.Intermediates) != len(signer.Intermediates) {
		s.signer = signer
	}
	return nil
}

// intermediate is this replica's, and the root above it: the active one, unless a new intermediate
// cannot be had and the one at hand is below another root that is trusted. It is renewed at half of
// its life.
func (s *selfSigned) intermediate(ctx context.Context, active *x509.Certificate, now time.Time) (*pair,
	*x509.Certificate, error) {
	s.keyless = ""
	if s.inter != nil && s.inter.under(active, now) &&
		!due(s.inter.cert, earlier(now.Add(intermediateLife), active.NotAfter), now) {
		if _, err := s.rootKey(active); err != nil && s.replicas == nil {
			s.keyless = s.unrenewed(err)
		}
		return s.inter, active, nil
	}
	p, err := s.newIntermediate(ctx, active, now)
	if err == nil {
		s.inter = p
		return p, active, nil
	}
	above := s.above(now)
	if above == nil {
		return nil, nil, err
	}
	s.keyless = s.unrenewed(err)
	return s.inter, above, nil
}

// newIntermediate makes an intermediate below a root, or gets one from the replica that has the
// root's key.
func (s *selfSigned) newIntermediate(ctx context.Context, root *x509.Certificate, now time.Time) (*pair, error) {
	by, err := s.rootKey(root)
	switch {
	case err == nil:
		return s.makeIntermediate(by, now)
	case s.replicas != nil:
		return s.fetch(ctx, root, now)
	}
	return nil, err
}

// activeKey is the key of the root that signs.
func (s *selfSigned) activeKey() (*pair, error) {
	root, err := s.state.root(s.state.Active)
	if err != nil {
		return nil, err
	}
	return s.rootKey(root)
}

// unrenewed tells what keeps the intermediate from being renewed.
func (s *selfSigned) unrenewed(err error) string {
	return fmt.Sprintf("the intermediate cannot be renewed and ends at %s: %v",
		s.inter.cert.NotAfter.UTC().Format(time.RFC3339), err)
}

// rootKey is the key of a root. It is looked for on the disk too: an operator may have put it back.
func (s *selfSigned) rootKey(root *x509.Certificate) (*pair, error) {
	id := RootID(root)
	for _, name := range []string{rootFile, nextRootFile} {
		if s.keys[id] != nil {
			return s.keys[id], nil
		}
		p, err := s.dir.pair(name)
		switch {
		case err != nil:
			return nil, err
		case p != nil:
			s.keys[RootID(p.cert)] = p
		}
	}
	if p := s.keys[id]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("the records say that root %s signs, and its key is not in %s (%s): restore that file "+
		"from a backup of the same time as the store, "+
		"or put an intermediate that is signed by this root, key and certificate, into %s",
		id, s.dir, rootFile, intermediateFile)
}

// makeIntermediate makes an intermediate of this replica and keeps it.
func (s *selfSigned) makeIntermediate(root *pair, now time.Time) (*pair, error) {
	key := NewKey()
	cert, err := root.intermediate(s.trustDomain, key.Public(), now)
	if err != nil {
		return nil, err
	}
	p := &pair{key: key, cert: cert}
	return p, s.keep(p, root.cert)
}

// keep writes an intermediate of this replica down.
func (s *selfSigned) keep(p *pair, root *x509.Certificate) error {
	if err := s.dir.writePair(intermediateFile, p); err != nil {
		return err
	}
	s.loaded("intermediate", p.cert, root)
	return nil
}

// intermediate signs one below a root.
func (p *pair) intermediate(trustDomain string, key crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	above, err := NewSigner(p.cert, p.key, nil, p.cert, now)
	if err != nil {
		return nil, fmt.Errorf("root %s: %w, and this machine's clock says %s: set the clock; if it is right and the "+
			"root has ended, move the state folder aside and let every workload join again",
			RootID(p.cert), err, now.UTC().Format(time.RFC3339))
	}
	return above.NewIntermediate("Ashore intermediate of "+trustDomain, intermediateLife, key, now)
}

// loaded logs and audits that a certificate of this replica is in use.
func (s *selfSigned) loaded(what string, cert, root *x509.Certificate) {
	s.log.Info("made or got an authority's certificate", "what", what, "root", RootID(root), "serial", serialText(cert),
		"ends", cert.NotAfter)
	s.audit(audit.Event{Action: audit.CALoad, Actor: "ashored", Target: what, Details: map[string]string{
		"root": RootID(root), "serial": serialText(cert), "notAfter": cert.NotAfter.Format(time.RFC3339),
	}})
}
