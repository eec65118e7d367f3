package ca

import (
	"encoding/json"
	"testing"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Whatever somebody writes in the place of a replica's record, a token or both, nothing of the
// authority changes, and nobody gets an intermediate that was not proven.
func FuzzReplicaRecords(f *testing.F) {
	request, err := json.Marshal(replicaRecord{Format: 1, Name: "x",
		Request: &replicaRequest{Root: "sha256:00", CSR: []byte("x"), Token: "abc", Proof: []byte("x"), At: noon}})
	if err != nil {
		f.Fatal(err)
	}
	token, err := json.Marshal(replicaToken{Format: 1, Public: make([]byte, 32), Root: "sha256:00", Expires: noon})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{{}, []byte("null"), []byte("{}"), []byte(`{"v":1}`), []byte(`{"v":1,"request":{}}`),
		[]byte(`{"v":1,"certificates":["AA==",null]}`), request, token} {
		f.Add(seed, seed)
		f.Add(request, seed)
	}
	f.Fuzz(func(t *testing.T, replica, token []byte) {
		if len(replica) > record.MaxValue || len(token) > record.MaxValue {
			return
		}
		w := newTown(t)
		before := w.m.Signer()
		for name, value := range map[string][]byte{replicaRecords + "other": replica, replicaTokens + "abc": token} {
			if err := w.first.records.Commit(t.Context(), record.Write{Key: record.Key{Table: table, Name: name},
				Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			w.first.later(w.m, 0)
		}
		if w.m.Signer() != before {
			t.Error("it signs with something else")
		}
		r, err := w.first.records.Get(t.Context(), record.Key{Table: table, Name: replicaRecords + "other"})
		if err != nil {
			t.Fatal(err)
		}
		var now replicaRecord
		if json.Unmarshal(r.Value, &now) != nil {
			return
		}
		for _, c := range now.certificates() {
			if c.CheckSignatureFrom(before.Root) == nil {
				t.Error("an intermediate was made of nonsense")
			}
		}
		show(t, w.m)
	})
}
