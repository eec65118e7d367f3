package adminapi

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/secret"
)

// What fails has an error of the API, and is audited without the key.
func TestSecretErrors(t *testing.T) {
	t.Parallel()
	var events []audit.Event
	a := &API{Record: func(e audit.Event) { events = append(events, e) }, Secrets: secret.NewManager(secret.Config{
		Records: record.NewMemory(), KeyFile: filepath.Join(t.TempDir(), "secrets.key")})}
	web := secret.Name{Namespace: "edge", Name: "web"}
	_, err := a.CreateSecret(t.Context(), admin.SecretRequest{Secret: web,
		Value: secret.Secret{Certificate: "web", Key: "very private"}})
	if !errors.Is(err, admin.ErrInvalid) {
		t.Errorf("create: %v", err)
	}
	if _, err := a.DeleteSecret(t.Context(), web); !errors.Is(err, admin.ErrNotFound) {
		t.Errorf("delete: %v", err)
	}
	if len(events) != 2 || events[0].Action != audit.SecretCreate || events[1].Action != audit.SecretDelete {
		t.Fatalf("audited are %+v", events)
	}
	for _, e := range events {
		if e.Target != "edge/web" || e.Outcome != audit.Failed || strings.Contains(e.Reason, "private") {
			t.Errorf("audited is %+v", e)
		}
	}
}
