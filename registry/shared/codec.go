package shared

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

// The tables of records.
const (
	registrationTable = "registration" // entry, by entryKey
	replicaTable      = "replica"      // sign, by the replica's id
)

// format is the only one of records that is read.
const format = 1

// errNewer is about a record that a later release wrote.
var errNewer = errors.New("a later release wrote it")

// entry is the record of a registration.
type entry struct {
	Format int `json:"v"`
	registry.Registration
	// Session is that of the stream that speaks for it; empty: its proxy has gone.
	Session string `json:"session,omitempty"`
	// Owner is the id of the replica that wrote it.
	Owner string `json:"owner"`
}

// sign is the record of a replica that is alive.
type sign struct {
	Format int `json:"v"`
	// Name and Address are what people call it, and where other replicas find it.
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	// Advertise is where agents find it.
	Advertise []string `json:"advertise,omitempty"`
	// Member is what the authority's records call it.
	Member string `json:"member,omitempty"`
	// Beat changes each time that it is written.
	Beat int `json:"beat"`
}

// entryKey is where the record of a registration stands.
func entryKey(k registry.RegistrationKey) record.Key {
	name := k.Namespace + "/" + k.Group + "/" + k.Name
	if len(registrationTable)+len(name) > record.MaxName {
		sum := sha256.Sum256([]byte(name))
		name = k.Namespace + "/" + hex.EncodeToString(sum[:])
	}
	return record.Key{Table: registrationTable, Name: name}
}

// encode makes the record of a registration.
func encode(owner string, r *registry.Registration) ([]byte, error) {
	return json.Marshal(entry{Format: format, Registration: *r, Session: r.Session, Owner: owner})
}

// decode reads what encode made. Errors say why it cannot be used.
func decode(rec record.Record) (r *registry.Registration, owner string, err error) {
	var e entry
	if err := json.Unmarshal(rec.Value, &e); err != nil {
		return nil, "", err
	}
	switch {
	case e.Format > format:
		return nil, "", fmt.Errorf("%w: it has format %d, this program reads %d", errNewer, e.Format, format)
	case e.Format != format:
		return nil, "", fmt.Errorf("it has format %d, this program reads %d", e.Format, format)
	case e.Namespace == "" || e.Registration.Name == "" || e.Owner == "" || len(e.Addresses) == 0 || slices.ContainsFunc(e.Addresses, func(a netip.Addr) bool { return !a.IsValid() }) || e.Health.State > registry.ReportedUnhealthy:
		return nil, "", errors.New("it is incomplete")
	case entryKey(e.RegistrationKey) != rec.Key:
		return nil, "", errors.New("it is of another workload")
	}
	e.Registration.Session = e.Session
	return &e.Registration, e.Owner, nil
}

// decodeSign reads the record of a replica.
func decodeSign(value []byte) (sign, error) {
	var s sign
	if err := json.Unmarshal(value, &s); err != nil {
		return s, err
	}
	if s.Format != format {
		return s, fmt.Errorf("it has format %d, this program reads %d", s.Format, format)
	}
	return s, nil
}
