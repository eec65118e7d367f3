package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// group is a command that only leads to others.
func group(use, short, long, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			return usage(cmd, fmt.Errorf("%s has no command %q: want %s", cmd.CommandPath(), args[0],
				strings.Join(names, ", ")))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

func (t *tool) joinTokenCommand() *cobra.Command {
	return group("join-token", "Let machines join the mesh",
		`A join token lets one machine join, once, as a member of a WorkloadGroup: that group says which identity
it gets. "create" prints the commands to run there. ashored keeps no token, only its hash.`,
		"  ashorectl join-token create --group shop/web\n  ashorectl join-token list",
		t.createTokenCommand(), t.listTokensCommand(), t.revokeTokenCommand())
}

func (t *tool) createTokenCommand() *cobra.Command {
	var of string
	var installed bool
	ttl := lifetime(time.Hour)
	cmd := &cobra.Command{
		Use:   "create --group NAMESPACE/NAME [-- FLAGS OF ashore-agent join]",
		Short: "Print the commands that make a machine join",
		Long: `create makes a join token and prints the commands for the workload's machine. Paste all of them there, as root or
as a user who may use sudo, in the folder with the packages. Flags after "--" are added to "ashore-agent join".

The token works once. Pasting the commands again on the same machine changes nothing. Whoever has the token can
join in place of that machine: handle it as a password. Notes go to standard error. It needs the role operator.`,
		Example: `  ashorectl join-token create --group shop/web
  ashorectl join-token create --group shop/api --installed -- --name api-1 --address 10.0.0.8 --interception none
  ashorectl join-token create --group shop/web --installed | ssh vm7 sudo sh`,
		RunE: func(cmd *cobra.Command, extra []string) error {
			switch {
			case of == "":
				return usage(cmd, errors.New("--group is missing: name a WorkloadGroup, such as --group shop/web; \"ashorectl get workloadgroup\" lists them"))
			case len(extra) > 0 && cmd.ArgsLenAtDash() != 0:
				return usage(cmd, fmt.Errorf("unexpected argument %q: write flags of \"ashore-agent join\" after \"--\"", extra[0]))
			}
			made, err := ask(t, cmd, func(c *admin.Client, ctx context.Context) (admin.Token, error) {
				return c.CreateToken(ctx, admin.TokenRequest{Group: of, TTL: ttl.String()})
			})
			if err != nil {
				return err
			}
			made.Join = append(made.Join, extra...)
			return t.output.write(cmd.OutOrStdout(), made, func(w io.Writer) error {
				if err := tokenNotes(cmd.ErrOrStderr(), made, time.Now()); err != nil {
					return err
				}
				_, err := io.WriteString(w, joinScript(made, installed))
				return err
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&of, "group", "",
		"WorkloadGroup that the machine becomes a member of, NAMESPACE/NAME (required)")
	cmd.Flags().Var(&ttl, "ttl", "how long the token can be used, "+lifetimeForm)
	cmd.Flags().BoolVar(&installed, "installed", false, "leave out the installation of the packages, and sudo")
	must(cmd.RegisterFlagCompletionFunc("group", func(cmd *cobra.Command, _ []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		return t.completeObjects(cmd.Context(), []string{"workloadgroup"}, "")
	}))
	return cmd
}

// joinScript is what to paste into a POSIX shell on the workload's machine. It is one command list,
// so that the shell has read the token before apt, which may read standard input, starts. The token
// is in a here-document: arguments can be read by every user of the machine.
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

// shellWord is a word as a POSIX shell has to be given it.
func shellWord(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// tokenNotes writes what people should know beside the commands.
func tokenNotes(w io.Writer, made admin.Token, now time.Time) error {
	_, err := fmt.Fprintf(w, "Paste this on the workload's machine, in the folder with the packages, within %s. It becomes %s (group %s).\n",
		span(made.Expires.Sub(now)), made.Identity, made.Group)
	for _, note := range made.Notes {
		if err == nil {
			_, err = fmt.Fprintln(w, note)
		}
	}
	return err
}

// lifetime is how long a token can be used, as a flag. ashored judges what is too short or too
// long.
type lifetime time.Duration

const lifetimeForm = "1m to 168h, such as 15m or 24h"

// Set implements pflag.Value. Errors: what is no time, or none above zero.
func (l *lifetime) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New("want " + lifetimeForm)
	}
	*l = lifetime(d)
	return nil
}

// String implements pflag.Value.
func (l *lifetime) String() string { return time.Duration(*l).String() }

// Type implements pflag.Value.
func (l *lifetime) Type() string { return "duration" }

func (t *tool) listTokensCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show join tokens, and who used them",
		Long: `list shows the join tokens that can be used, and those that were recently used, revoked or expired. The secret part of a
token is only printed when it is created.`,
		Example: "  ashorectl join-token list\n  ashorectl join-token list -o json | jq -r '.[] | select(.state == \"unused\") | .id'",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := ask(t, cmd, (*admin.Client).ListTokens)
			if err != nil {
				return err
			}
			if list == nil {
				list = []admin.TokenStatus{} // [] for programs, not null
			}
			return t.output.write(cmd.OutOrStdout(), list, func(w io.Writer) error {
				return tokenTable(w, list,
					time.Now())
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

func tokenTable(w io.Writer, list []admin.TokenStatus, now time.Time) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "none: \"ashorectl join-token create --group NAMESPACE/NAME\" makes one")
		return err
	}
	var rows [][]string
	for _, k := range list {
		state, expires := k.State, "-"
		switch {
		case k.State == "unused":
			expires = "in " + span(k.Expires.Sub(now))
		case k.UsedBy != "":
			state = fmt.Sprintf("used by %s %s ago", k.UsedBy, ago(now, k.UsedAt))
		}
		rows = append(rows, []string{k.ID, k.Group, ago(now, k.Created), orDash(k.By), expires, state})
	}
	return columns(w, []string{"ID", "GROUP", "AGE", "MADE BY", "EXPIRES", "STATE"}, rows)
}

func (t *tool) revokeTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a join token",
		Long: `revoke makes a join token useless, also for the machine that used it. A workload that has joined with it stays in the
mesh: see "ashorectl workload revoke". It needs the role operator.`,
		Example: "  ashorectl join-token revoke gi3dsnrvgy4dkmbx",
		Args: between(1, 1, func(*cobra.Command) string {
			return "ID is missing: name a token by its ID; \"ashorectl join-token list\" shows them"
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.patient(cmd, revokeTime)
			c, err := t.client()
			if err != nil {
				return err
			}
			id := tokenID(args[0])
			if err := c.RevokeToken(cmd.Context(), id); err != nil {
				return blamed(cmd, err)
			}
			list, err := c.ListTokens(cmd.Context())
			if err != nil {
				return fmt.Errorf("token %s is revoked; ask whether it had been used: %w", id, err)
			}
			answer := revokedToken{ID: id, State: "revoked"}
			for _, k := range list {
				if k.ID == id {
					answer.UsedBy, answer.UsedAt = k.UsedBy, k.UsedAt
				}
			}
			return t.output.write(cmd.OutOrStdout(), answer, func(w io.Writer) error {
				return answer.text(w,
					time.Now())
			})
		},
		ValidArgsFunction: offerFirst(t.completeTokens),
	}
}

// revokedToken is what is told of a token that is revoked. UsedBy and UsedAt are zero when nobody
// joined with it.
type revokedToken struct {
	ID     string    `json:"id"`
	State  string    `json:"state"`
	UsedBy string    `json:"usedBy,omitempty"`
	UsedAt time.Time `json:"usedAt,omitzero"`
}

func (r revokedToken) text(w io.Writer, now time.Time) error {
	text := fmt.Sprintf("token %s is revoked\n", r.ID)
	if r.UsedBy != "" {
		text += fmt.Sprintf("It was used already, by %s %s ago, which stays in the mesh: \"ashorectl workload revoke %s\" takes its identity away.\n",
			r.UsedBy, ago(now, r.UsedAt), r.UsedBy)
	}
	_, err := io.WriteString(w, text)
	return err
}

// tokenID is the ID of what may be a whole token, so that its secret is not sent and shown.
func tokenID(arg string) string {
	if rest, whole := strings.CutPrefix(arg, "ashore-join."); whole {
		arg, _, _ = strings.Cut(rest, ".")
	}
	return arg
}

// completeTokens offers the tokens that can be revoked.
func (t *tool) completeTokens(ctx context.Context) ([]string, cobra.ShellCompDirective) {
	return offer(ctx, t, (*admin.Client).ListTokens, func(list []admin.TokenStatus) (out []string) {
		for _, k := range list {
			if k.State == "unused" {
				out = append(out, k.ID)
			}
		}
		return out
	})
}
