package shared

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

// The tables of records.
const (
	registrationTable = "registration" // registrationRecord, by recordName
	replicaTable      = "replica"      // replicaRecord, by the ID of the replica
)

// registrationRecord is the value of a registration's record.
type registrationRecord struct {
	registry.Registration
	Session string `json:"session,omitempty"`
	// Owner is the ID of the replica that wrote it.
	Owner string `json:"owner"`
}

// replicaRecord is the value of a replica's record, the heartbeat.
type replicaRecord struct {
	// Name, Advertise and Address are Config.Replica, Advertise and Address.
	Name      string   `json:"name"`
	Advertise []string `json:"advertise,omitempty"`
	Address   string   `json:"address,omitempty"`
	// Count increases with each heartbeat.
	Count int `json:"count"`
}

// recordName returns the name of a registration's record. It hashes names that are too long.
func recordName(k registry.RegistrationKey) string {
	name := k.Namespace + "/" + k.Group + "/" + k.Name
	if len(registrationTable)+len(name) > record.MaxName {
		sum := sha256.Sum256([]byte(name))
		name = k.Namespace + "/" + hex.EncodeToString(sum[:])
	}
	return name
}

// encode returns the value of a registration's record.
func encode(r *registry.Registration, owner string) ([]byte, error) {
	return json.Marshal(registrationRecord{Registration: *r, Session: r.Session, Owner: owner})
}

// decode parses the value of the record called name.
func decode(name string, value []byte) (r *registry.Registration, owner string, err error) {
	var d registrationRecord
	if err := json.Unmarshal(value, &d); err != nil {
		return nil, "", err
	}
	r = &d.Registration
	r.Session = d.Session
	invalid := func(a netip.Addr) bool { return !a.IsValid() }
	if r.Namespace == "" || r.Name == "" || d.Owner == "" || len(r.Addresses) == 0 ||
		slices.ContainsFunc(r.Addresses, invalid) || r.Health.State > registry.ReportedUnhealthy {
		return nil, "", errors.New("the registration is incomplete")
	}
	if recordName(r.RegistrationKey) != name {
		return nil, "", errors.New("the registration has the name of another workload")
	}
	return r, d.Owner, nil
}
