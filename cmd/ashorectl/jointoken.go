package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

func (t *tool) joinTokenCommand() *cobra.Command {
	return group("join-token", "Let machines join the mesh",
		t.createTokenCommand(), t.listTokensCommand(), t.revokeTokenCommand())
}

func (t *tool) createTokenCommand() *cobra.Command {
	var q admin.TokenRequest
	var installed bool
	cmd := &cobra.Command{
		Use:   "create --group NAMESPACE/NAME [-- FLAGS OF ashore-agent join]",
		Short: "Create a one-time token and print the commands with which a machine joins",
		Example: `  ashorectl join-token create --group shop/web
  ashorectl join-token create --group shop/api --installed -- --name api-1 --address 10.0.0.8 --interception none
  ashorectl join-token create --group shop/web --installed | ssh vm7 sudo sh`,
		Args: func(cmd *cobra.Command, extra []string) error {
			if len(extra) > 0 && cmd.ArgsLenAtDash() != 0 {
				return fmt.Errorf("unexpected argument %q: write flags of \"ashore-agent join\" after \"--\"", extra[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, extra []string) error {
			if q.Group == "" {
				return usage(cmd, errors.New("--group is missing: \"ashorectl get workloadgroup\" lists the groups"))
			}
			made, err := ask(t, cmd, admin.CallCreateToken, q)
			if err != nil {
				return err
			}
			made.Join = append(made.Join, extra...)
			if t.output == tableFormat {
				if err := printNotes(cmd, made); err != nil {
					return err
				}
			}
			return t.print(cmd, made, joinScript(made, installed))
		},
	}
	cmd.Flags().StringVar(&q.Group, "group", "", "WorkloadGroup of the machine, NAMESPACE/NAME (required)")
	ttlFlag(cmd, &q.TTL)
	cmd.Flags().BoolVar(&installed, "installed", false, "do not print sudo and the installation of the packages")
	return cmd
}

// printNotes prints to standard error, so that the commands can be piped.
func printNotes(cmd *cobra.Command, made admin.Token) error {
	text := fmt.Sprintf("Run these commands on the machine, in the folder with the packages; the token expires %s. "+
		"The machine gets the identity %s (group %s).\n", when(made.Expires), made.Identity, made.Group)
	for _, note := range made.Notes {
		text += note + "\n"
	}
	_, err := fmt.Fprint(cmd.ErrOrStderr(), printableLines(text))
	return err
}

// joinScript returns the commands for a POSIX shell on the machine. It is one command list, so the
// shell has read the token before apt starts, which may read standard input. The token is in a
// here-document, because every user of the machine can read arguments.
func joinScript(made admin.Token, installed bool) string {
	words := make([]string, len(made.Join))
	for i, word := range made.Join {
		words[i] = shellWord(word)
	}
	join := strings.Join(words, " ") + " <<'EOF'\n" + made.Token + "\nEOF\n"
	if installed {
		return join
	}
	return `# With dnf: dnf install -y ./ashore-agent-*.rpm ./ashore-envoy-*.rpm
sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt install -y ./ashore-agent_*.deb ./ashore-envoy_*.deb &&
$sudo ` + join
}

// shellWord quotes a word for a POSIX shell.
func shellWord(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func (t *tool) listTokensCommand() *cobra.Command {
	return sends(t, &cobra.Command{
		Use:   "list",
		Short: "Show the join tokens that are valid, and those that were used, revoked or expired lately",
		Example: `  ashorectl join-token list
  ashorectl join-token list -o yaml
  ashorectl join-token list -o json | jq -r '.[] | select(.state == "unused").id'`,
	}, admin.CallTokens, &admin.None{}, tokenTable)
}

func tokenTable(list []admin.TokenStatus) string {
	tb := newTable("ID", "GROUP", "AGE", "CREATED BY", "EXPIRES", "STATE")
	for _, k := range list {
		state, expires := k.State, ""
		switch {
		case k.State == "unused":
			expires = when(k.Expires)
		case k.UsedBy != "":
			state = fmt.Sprintf("used by %s %s", k.UsedBy, when(k.UsedAt))
		}
		tb.add(k.ID, k.Group, age(k.Created), k.By, expires, state)
	}
	if len(list) == 0 {
		return "none\n"
	}
	return tb.String()
}

func (t *tool) revokeTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a join token; a machine that has joined with it stays in the mesh",
		Example: `  ashorectl join-token list
  ashorectl join-token revoke gi3dsnrvgy4dkmbx
  ashorectl workload revoke shop/web-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := admin.TokenID{ID: tokenID(args[0])}
			if _, err := ask(t, cmd, admin.CallRevokeToken, id); err != nil {
				return err
			}
			return t.print(cmd, id, fmt.Sprintf("token %s is revoked. A workload that joined with it stays\n", id.ID))
		},
	}
}

// tokenID returns the ID in arg, which may be a whole token: its secret is not sent.
func tokenID(arg string) string {
	if rest, whole := strings.CutPrefix(arg, "ashore-join."); whole {
		arg, _, _ = strings.Cut(rest, ".")
	}
	return arg
}
