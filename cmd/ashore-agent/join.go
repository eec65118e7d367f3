package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/agent/host"
	"github.com/ashore-mesh/ashore/internal/machine"
)

const joinLong = `join makes this machine's workload a member of the mesh and runs its Envoy.

As root on a machine with systemd and the packages it checks the machine, joins, starts ashore-agent.service, and
installs the rules that bring traffic to Envoy (--interception none: no rules). If a step fails, it undoes the others.
Without root, systemd or the packages, join continues as "ashore-agent run".

The command comes from "ashorectl join-token create", or has a token of the workload's service account. Pasting it again changes nothing. The token is used after the
machine was checked. A machine that had the name before is replaced: give a cloned machine another name (--name).`

const joinExample = `  # as "ashorectl join-token create --group shop/web" prints it, with the token on standard input
  ashore-agent join --control-plane ashore.example.com:15012 --ca-hash sha256:… --group shop/web <<'EOF'
  ashore-join.…
  EOF

  # the token from a file
  ashore-agent join … --token-file /run/token

  # in a Pod of Kubernetes, with the token of its service account
  ashore-agent join --control-plane istiod.istio-system.svc:15012 --ca-file /var/run/secrets/istio/root-cert.pem \
    --service-account-token /var/run/secrets/tokens/istio-token --namespace shop

  # a cloned machine, whose host name is in use
  ashore-agent join … --name web-2

  # beside other workloads of a trial machine
  ashore-agent join … --name web-2 --address 127.0.0.3 --state ~/mesh/web-2`

// joinFlags are what a workload joins with.
type joinFlags struct {
	hash, group string
	tokenFile   string
	noRun       bool
}

func (p *program) joinCommand() *cobra.Command {
	f, j := &flags{}, &joinFlags{}
	cmd := command("join", "Make this workload a member of the mesh, and run its Envoy", joinLong, joinExample,
		func(ctx context.Context) error {
			state := f.text("state")
			f.host = p.host != nil && !j.noRun && f.given("dev") == nil && (state == "" || p.host.Runs(state))
			if state == "" && !j.noRun && f.given("dev") == nil && host.NeedsRoot() {
				return errors.New("run this as root (sudo): the units of the package ashore-agent run this machine's workload; " +
					"for a trial without root give a folder (--state)")
			}
			c, err := j.config(f, p)
			if err != nil {
				return err
			}
			if f.host {
				return p.joinHost(ctx, c)
			}
			return p.join(ctx, f, j, c)
		})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&j.hash, "ca-hash", "", "`sha256:…` of the control plane's root certificate")
	fs.StringVar(&j.group, "group", "", "the WorkloadGroup, `namespace/name`")
	fs.StringVar(&j.tokenFile, "token-file", "-", "`file` with the one-time token; - is standard input")
	fs.BoolVar(&j.noRun, "no-run", false, "join only: change no units and no rules, and start nothing")
	f.add(fs, "control-plane")
	return cmd
}

// config reads the settings and the token, and checks them.
func (j *joinFlags) config(f *flags, p *program) (c agent.JoinConfig, err error) {
	s, err := f.read()
	if err != nil {
		return c, err
	}
	if f.host {
		s.UseUnits("")
		if s.Workload.Type == "router" && s.Workload.Interception == "tproxy" {
			s.Workload.Interception = "none" // a gateway has no application
		}
	}
	token := ""
	if s.XDS.TokenFile == "" || j.tokenFile != "-" {
		if token, err = j.readToken(p.stdin); err != nil {
			return c, err
		}
	}
	c = agent.JoinConfig{Settings: s, Group: j.group, Hash: j.hash, Token: token,
		Log: p.logger(s.Log)}
	return c, f.named(c.Prepare())
}

// joinHost joins and has units of this machine run the workload.
func (p *program) joinHost(ctx context.Context, c agent.JoinConfig) error {
	r, err := p.host.Join(ctx, c)
	if err != nil {
		return err
	}
	state := r.Settings.State
	how, more := "has joined the mesh", ""
	if r.Unchanged {
		how = "has joined before and runs"
		more = " Nothing was changed, and the token was not used. For other settings edit " +
			agent.JoinedSettings(state) + " and restart the agent."
	}
	report, err := agent.Status(ctx, state)
	if err != nil {
		return err
	}
	err = p.say("%s %s, at %s.%s Its status:", filepath.Base(state), how,
		strings.Join(r.Settings.Workload.Addresses, ", "), more)
	return errors.Join(err, report.Write(p.stdout))
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

// portsFree returns an error if another program has a port of a workload that has not joined.
func portsFree(ctx context.Context, s agent.Settings) error {
	if _, _, err := agent.JoinedAs(s.State); !errors.Is(err, agent.ErrNoIdentity) {
		return nil // its own agent may run
	}
	if err := s.FindAddress(ctx); err != nil {
		return err
	}
	return agent.PortsFree(&s, machine.PortOwner)
}

// join joins and, unless there is nothing to run, continues as "run". Before it uses the token it
// checks what would prevent that.
func (p *program) join(ctx context.Context, f *flags, j *joinFlags, c agent.JoinConfig) error {
	err := agent.CheckAddress(ctx, &c.Settings)
	if !j.noRun {
		_, missing := c.Settings.Envoy.Program(ctx)
		err = errors.Join(err, missing, portsFree(ctx, c.Settings))
	}
	if err != nil {
		return f.named(err)
	}
	r, err := agent.Join(ctx, c)
	if err != nil {
		return f.named(err)
	}
	how := "joined"
	if r.Already {
		how = "has joined before (the token was not used)"
	}
	id := r.Identity
	err = p.say("%s: %s\n  certificate %s, until %s\n  kept in %s", id.ID, how, id.Serial(),
		id.Leaf().NotAfter.Format("2006-01-02 15:04:05 MST"), r.Settings.State)
	switch {
	case err != nil:
		return err
	case r.Running != 0:
		return p.say("running, pid %d", r.Running)
	case j.noRun:
		return nil
	}
	f.joinedState = r.Settings.State
	return p.runAgent(ctx, f)
}
