package adminapi

import (
	"context"
	"errors"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/secret"
)

// CreateSecret writes a secret to the store, or replaces it. Errors: admin.ErrInvalid if proxies
// could not use it.
func (a *API) CreateSecret(ctx context.Context, q admin.SecretRequest) (secret.Status, error) {
	made, err := a.Secrets.Create(ctx, q.Secret, q.Value)
	var details []string
	if !made.Expires.IsZero() {
		details = []string{"expires", made.Expires.UTC().Format(time.RFC3339)}
	}
	a.record(ctx, audit.SecretCreate, q.Secret.String(), err, details...)
	if errors.Is(err, secret.ErrInvalid) {
		err = invalid("%v", err)
	}
	return made, err
}

// ListSecrets lists the secrets in use, without their keys.
func (a *API) ListSecrets(context.Context, admin.None) ([]secret.Status, error) {
	return a.Secrets.List(), nil
}

// DeleteSecret deletes a secret from the store. Errors: admin.ErrNotFound.
func (a *API) DeleteSecret(ctx context.Context, n secret.Name) (admin.None, error) {
	err := a.Secrets.Delete(ctx, n)
	a.record(ctx, audit.SecretDelete, n.String(), err)
	if errors.Is(err, secret.ErrNotFound) {
		err = notFound("%v: \"ashorectl secret list\" lists the secrets", err)
	}
	return admin.None{}, err
}
