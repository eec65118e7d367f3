package replicas

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/secret"
)

// A secret that is created at one replica is used by another one, once that has the key.
func TestSecretOfAnotherReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	cert, key := harness.NewCA(t).Issue(t, "web.test")
	web := secret.Name{Namespace: "shop", Name: "web"}
	if _, err := admin.Send(t.Context(), w.meshes[0].Admin, admin.CallCreateSecret, admin.SecretRequest{Secret: web,
		Value: secret.Secret{Certificate: string(cert), Key: string(key)}}); err != nil {
		t.Fatal(err)
	}
	other := w.meshes[1]
	harness.Eventually(t, "the other replica asks for the key", func() error {
		problems, err := admin.Send(t.Context(), other.Admin, admin.CallProblems, admin.None{})
		for _, p := range problems {
			if strings.Contains(p.Text, "copy the file from the replica that created them") {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("problems are %v", problems))
	})
	const file = "secrets.key"
	shared, err := os.ReadFile(filepath.Join(w.meshes[0].State, file))
	if err == nil {
		err = os.WriteFile(filepath.Join(other.State, file), shared, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the other replica has the secret", func() error {
		list, err := admin.Send(t.Context(), other.Admin, admin.CallSecrets, admin.None{})
		if err == nil && (len(list) != 1 || list[0].Name != web) {
			err = fmt.Errorf("it has %v", list)
		}
		return err
	})
}
