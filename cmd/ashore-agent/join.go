package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/agent"
)

const joinLong = `join makes this machine's workload a member of the mesh and runs its Envoy.

As root on a machine with systemd and the packages it checks the machine, joins, starts ashore-agent.service, and
installs the rules that bring traffic to Envoy (--interception none: no rules). What fails is undone. The units run the
workload from then on, also after a reboot. Without root, systemd or the packages, join goes on as "ashore-agent run".

The command comes from "ashorectl join-token create". Pasting it again changes nothing. The token is used after the
machine was checked. The name of a machine that is alive is refused: give this one another name (--name), or let it
take that one's place (--replace).`

const joinExample = `  # the command that "ashorectl join-token create --group shop/web" prints; the token is on standard input
  ashore-agent join --control-plane ashore.example.com:15012 --ca-hash sha256:… --group shop/web <<'EOF'
  ashore-join.…
  EOF

  # the token from a file
  ashore-agent join … --token-file /run/token

  # one of several machines that were cloned, and have one host name
  ashore-agent join … --name web-2

  # beside other workloads of a trial machine
  ashore-agent join … --name web-2 --address 127.0.0.3 --state ~/mesh/web-2`

// joinFlags are what a workload joins with.
type joinFlags struct {
	hash, group    string
	tokenFile      string
	replace, noRun bool
}

func joinCommand(logging func(hclog.Logger), h *host, stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	f, j := &flags{}, &joinFlags{}
	cmd := &cobra.Command{
		Use:     "join",
		Short:   "Make this workload a member of the mesh, and run its Envoy",
		Long:    joinLong,
		Example: joinExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if j.hosted(h, f) {
				f.host = true
				return h.join(cmd.Context(), f, j, stdin, stdout, stderr)
			}
			result, err := j.join(cmd.Context(), f, stdin, stderr)
			if err != nil {
				return err
			}
			if err := tellJoined(stdout, result); err != nil || result.Running != 0 || j.noRun {
				return err
			}
			f.state = result.Settings.State
			return runAgent(cmd.Context(), logging, f, stdout, stderr)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringSlice("control-plane", nil, "`host:port` of the control plane's TLS port; several replicas with commas")
	fs.StringVar(&j.hash, "ca-hash", "", "`sha256:…` of the control plane's root certificate")
	fs.StringVar(&j.group, "group", "", "the WorkloadGroup, `namespace/name`")
	fs.StringVar(&j.tokenFile, "token-file", "-", "`file` with the one-time token; - is standard input")
	fs.BoolVar(&j.replace, "replace", false,
		"take the place of a machine of this name that is alive: this one was installed anew, for instance")
	fs.BoolVar(&j.noRun, "no-run", false, "join only: change no units and no rules, and start nothing")
	f.add(fs)
	return cmd
}

// hosted says whether units of the machine are to run the workload.
func (j *joinFlags) hosted(h *host, f *flags) bool {
	state := f.given.Lookup("state")
	return h != nil && !j.noRun && !f.given.Changed("dev") && (!state.Changed || h.runs(state.Value.String()))
}

// config reads the settings and the token, and checks them.
func (j *joinFlags) config(f *flags, stdin io.Reader) (agent.JoinConfig, error) {
	s, base, err := f.read()
	if err != nil {
		return agent.JoinConfig{}, err
	}
	if f.host && s.Workload.Type == "router" && s.Workload.Interception == "tproxy" {
		s.Workload.Interception = "none" // a gateway has no application
	}
	token, err := j.readToken(stdin)
	if err != nil {
		return agent.JoinConfig{}, err
	}
	c := agent.JoinConfig{Settings: s, Base: &base, Group: j.group, Hash: j.hash, Token: token, Replace: j.replace}
	return c, f.explain(c.Prepare())
}

// join reads the settings and joins.
func (j *joinFlags) join(ctx context.Context, f *flags, stdin io.Reader, stderr io.Writer) (*agent.JoinResult, error) {
	c, err := j.config(f, stdin)
	if err != nil {
		return nil, err
	}
	c.Log = logger(c.Settings.Log, stderr)
	c.Check = j.check(c.Log)
	result, err := agent.Join(ctx, c)
	return result, f.explain(err)
}

// check looks whether the workload can run here. A service manager may do so when Envoy has come.
func (j *joinFlags) check(log hclog.Logger) func(context.Context, *agent.Settings) error {
	return func(ctx context.Context, s *agent.Settings) error {
		err := agent.CheckAddress(ctx, s)
		_, missing := agent.FindEnvoy(s.Envoy.Path)
		if missing != nil && j.noRun {
			log.Warn("the agent cannot run before Envoy is there", "error", missing)
			missing = nil
		}
		return errors.Join(err, missing)
	}
}

// readToken reads the token from where the flags say.
func (j *joinFlags) readToken(stdin io.Reader) (token string, err error) {
	if j.tokenFile == "-" {
		return agent.ReadToken(stdin)
	}
	file, err := os.Open(j.tokenFile)
	if err != nil {
		return "", usage(fmt.Errorf("%w (--token-file)", err))
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return agent.ReadToken(file)
}

// tellJoined says how the workload stands.
func tellJoined(w io.Writer, r *agent.JoinResult) error {
	id := r.Identity
	how := "joined"
	if r.Already {
		how = "has joined before (the token was not used)"
	}
	_, err := fmt.Fprintf(w, "%s: %s\n  certificate %s, until %s\n  kept in %s\n", id.ID, how, id.Serial(),
		id.Leaf().NotAfter.Format("2006-01-02 15:04:05 MST"), r.Settings.State)
	if r.Running != 0 && err == nil {
		_, err = fmt.Fprintf(w, "running, pid %d\n", r.Running)
	}
	return err
}
