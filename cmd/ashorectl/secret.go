package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/secret"
)

func (t *tool) secretCommand() *cobra.Command {
	return group("secret", "Manage the certificates and keys that credentialName names",
		t.createSecretCommand(), t.listSecretsCommand(), t.deleteSecretCommand())
}

func (t *tool) createSecretCommand() *cobra.Command {
	var namespace string
	files := map[string]*string{} // by flag
	cmd := &cobra.Command{
		Use:   "create NAME -n NAMESPACE [--cert FILE --key FILE] [--ca FILE [--crl FILE]]",
		Short: "Write a secret to the store, or replace it",
		Example: `  ashorectl secret create web -n edge --cert web.pem --key web.key
  ashorectl secret create web-cacert -n edge --ca clients.pem
  ashorectl secret create edge/partner --cert client.pem --key client.key --ca partner-ca.pem`,
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := secretName(cmd, args[0], namespace)
		if err != nil {
			return err
		}
		q := admin.SecretRequest{Secret: n}
		for flag, to := range map[string]*string{"cert": &q.Value.Certificate, "key": &q.Value.Key,
			"ca": &q.Value.Authorities, "crl": &q.Value.Revoked} {
			if *files[flag] == "" {
				continue
			}
			data, err := os.ReadFile(*files[flag])
			if err != nil {
				return usage(cmd, err)
			}
			*to = string(data)
		}
		return show(t, cmd, admin.CallCreateSecret, q, func(made secret.Status) string {
			return fmt.Sprintf("secret %s is in the store%s\n", made.Name, expiry(made))
		})
	}
	namespaceFlag(cmd, &namespace)
	for flag, text := range map[string]string{"cert": "certificate chain, the leaf first, PEM", "key": "its private key, PEM",
		"ca": "authorities that verify the peer's certificate, PEM", "crl": "certificates that they have revoked, PEM"} {
		files[flag] = cmd.Flags().String(flag, "", text)
		must(cmd.MarkFlagFilename(flag))
	}
	return cmd
}

// secretName returns the secret of NAME and --namespace.
func secretName(cmd *cobra.Command, name, namespace string) (secret.Name, error) {
	ref, err := objectRef(cmd, []string{"secret", name}, namespace)
	if err != nil {
		return secret.Name{}, err
	}
	return secret.Name{Namespace: ref.Namespace, Name: ref.Name}, nil
}

// expiry says when a certificate expires.
func expiry(s secret.Status) string {
	if s.Expires.IsZero() {
		return ""
	}
	return ", expires " + when(s.Expires)
}

func (t *tool) listSecretsCommand() *cobra.Command {
	return sends(t, &cobra.Command{
		Use:   "list",
		Short: "Show the secrets in use, without their keys",
		Example: `  ashorectl secret list
  ashorectl secret list -o yaml
  ashorectl secret list -o json | jq -r '.[] | select(.source == "store").name'`,
	}, admin.CallSecrets, &admin.None{}, secretTable)
}

func secretTable(list []secret.Status) string {
	if len(list) == 0 {
		return "none\n"
	}
	tb := newTable("NAMESPACE", "NAME", "SOURCE", "CERTIFICATE", "EXPIRES", "AUTHORITIES")
	for _, s := range list {
		tb.add(s.Namespace, s.Name.Name, s.Source, strings.Join(s.Hosts, ", "), strings.TrimPrefix(expiry(s), ", expires "),
			fmt.Sprint(s.Authorities))
	}
	return tb.String()
}

func (t *tool) deleteSecretCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "delete NAME -n NAMESPACE",
		Short: "Delete a secret from the store; proxies that have it keep it until they restart",
		Example: `  ashorectl secret delete web -n edge
  ashorectl secret delete edge/web
  ashorectl secret delete edge/web-cacert`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := secretName(cmd, args[0], namespace)
			if err != nil {
				return err
			}
			if _, err := ask(t, cmd, admin.CallDeleteSecret, n); err != nil {
				return err
			}
			return t.print(cmd, n, fmt.Sprintf("secret %s is deleted. Proxies that have it keep it until they restart\n", n))
		},
	}
	namespaceFlag(cmd, &namespace)
	return cmd
}
