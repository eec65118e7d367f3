package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/internal/machine"
)

// Joined is the result of Join.
type Joined struct {
	// Settings are those that the workload runs with.
	Settings agent.Settings
	// Unchanged means that the workload had joined before and was running, so nothing was done.
	Unchanged bool
}

// Join makes a workload a member of the mesh and runs it. If a step fails or ctx ends, the earlier
// steps are undone. The identity is kept, and the same command continues with it.
func (h *Host) Join(ctx context.Context, c agent.JoinConfig) (*Joined, error) {
	w := &joining{Host: h, settings: c.Settings}
	if err := w.chooseUnit(); err != nil {
		return nil, err
	}
	units, err := w.Systemd.Show(ctx, w.unit)
	if err != nil || len(units) != 1 {
		return nil, errors.Join(fmt.Errorf("systemd does not know %s: install the package ashore-agent", w.unit), err)
	}
	w.before = units[0]
	if w.before.Active != "active" { // an active unit's own Envoy uses the ports
		if err := w.check(ctx); err != nil {
			return nil, err
		}
	}
	c.Settings = w.settings
	var result *agent.JoinResult
	err = w.As(func() (err error) { result, err = agent.Join(ctx, c); return err })
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("interrupted before the workload had joined; the machine works as before")
	case err != nil:
		return nil, err
	}
	err = w.start(ctx)
	if ctx.Err() != nil {
		err = errors.New("the join was interrupted")
	}
	if err != nil {
		return nil, errors.Join(err, w.undo(ctx))
	}
	return &Joined{w.settings, result.Already && !w.started && !w.hasRules}, nil
}

// joining is the state of a Join.
type joining struct {
	*Host
	settings agent.Settings // of the workload
	unit     string         // the systemd unit that runs the workload
	before   machine.Unit   // the state of unit before the Join
	started  bool           // the Join started unit
	hasRules bool           // the Join installed the interception rules
}

// chooseUnit finds the unit of the workload. The first workload of a machine has mainUnit.
func (w *joining) chooseUnit() error {
	s := &w.settings
	main := w.main()
	if main == "" || !joined(main) {
		main = s.State
	}
	w.unit = mainUnit
	if main == s.State {
		return nil
	}
	w.unit = "ashore-agent@" + filepath.Base(s.State) + ".service"
	if s.Workload.Interception != "none" || len(s.Workload.Addresses) == 0 {
		return &agent.UsageError{Setting: "workload.addresses", Text: filepath.Base(main) +
			" is this machine's workload already: a further one needs an address of its own, and has no interception: " +
			"add --name NAME --address ADDRESS --interception none"}
	}
	first, err := agent.SavedSettings(main)
	if err != nil {
		return err
	}
	if first.Workload.Interception == "tproxy" {
		return fmt.Errorf("all traffic of this machine goes through the Envoy of %s: "+
			"a machine with several identities has no interception: run \"ashore-agent leave\", and join both with "+
			"--interception none; for a second service of the same identity write another ServiceEntry",
			filepath.Base(main))
	}
	w.settings.Ports.DNS = 0
	return nil
}

// check finds what would prevent the workload from running, before the token is used.
func (w *joining) check(ctx context.Context) error {
	s := w.settings
	errs := []error{machine.CheckEnvoy(ctx, w.Envoy), machine.CheckResolver(w.Resolver), agent.CheckAddress(ctx, &s)}
	if s.Workload.Interception == "tproxy" {
		if _, err := exec.LookPath(w.NFT); err != nil {
			errs = append(errs, errors.New("interception needs the program nft, which is not there: "+
				"install the package nftables, or join with --interception none"))
		}
	}
	if err := s.FindAddress(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if !joined(s.State) { // after an earlier join, this workload's Envoy may still use the ports
		errs = append(errs, agent.PortsFree(&s, w.Owner))
	}
	return errors.Join(errs...)
}

// start starts the unit and installs the rules. It skips what is already done.
func (w *joining) start(ctx context.Context) error {
	s, err := agent.SavedSettings(w.settings.State)
	if err != nil {
		return err
	}
	w.settings.Workload, w.settings.XDS = s.Workload, s.XDS
	if w.unit == mainUnit {
		if err := w.link(); err != nil {
			return err
		}
	}
	if w.before.Active != "active" || w.before.File != "enabled" {
		w.started = true
		if err := w.Systemd.Run(ctx, "enable", "--quiet", "--now", w.unit); err != nil {
			return fmt.Errorf("start the agent: %w; journalctl -u %s says more", err, w.unit)
		}
	}
	if err := w.Ready(ctx, s.State); err != nil {
		return fmt.Errorf("the workload is not ready; journalctl -u %s says more: %w", w.unit, err)
	}
	if w.settings.Workload.Interception != "tproxy" {
		return nil
	}
	units, err := w.Systemd.Show(ctx, interceptUnit)
	if err != nil {
		return err
	}
	rules, err := w.Rules.Status(ctx)
	if err != nil {
		return err
	}
	if rules.Installed && len(units) == 1 && units[0].Active == "active" && units[0].File == "enabled" {
		return nil
	}
	if err := s.Complete(); err != nil {
		return err
	}
	c, checks, err := agent.InterceptConfig(&s)
	if err != nil {
		return err
	}
	if err := w.Rules.Install(ctx, c, checks); err != nil { // Install has undone its change
		return err
	}
	w.hasRules = true
	return w.KeepRules(ctx)
}

// KeepRules starts the unit that keeps confirmed rules installed, and enables it at boot.
func (h *Host) KeepRules(ctx context.Context) error {
	if err := h.Systemd.Run(ctx, "enable", "--quiet", "--now", interceptUnit); err != nil {
		return fmt.Errorf("install the rules at boot: %w", err)
	}
	return nil
}

// link makes mainUnit run this workload.
func (w *joining) link() error {
	link := filepath.Join(w.Folder, agent.MainLink)
	if w.main() == w.settings.State {
		return nil
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(filepath.Base(w.settings.State), link)
}

// undo stops and removes what start did.
func (w *joining) undo(ctx context.Context) error {
	if !w.started && !w.hasRules {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var err error
	if w.hasRules {
		err = w.removeRules(ctx)
	}
	if w.started {
		err = errors.Join(err, w.stop(ctx, w.settings.State))
	}
	if err != nil {
		return fmt.Errorf("and not everything could be undone, run \"ashore-agent leave\": %w", err)
	}
	return fmt.Errorf("%s is stopped and no rules are installed: the machine works as before. "+
		"The identity is kept: paste the same command again when the cause is removed", w.unit)
}
