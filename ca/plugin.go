package ca

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// plugIn is an authority of four files that its operator replaces.
type plugIn struct {
	dir         string
	records     record.Store
	trustDomain string
	log         hclog.Logger
	audit       func(audit.Event)

	now  *Plugged
	used [sha256.Size]byte // of the files in use
	// refused is the content that was refused last, and why; empty: what is in the files is in use.
	refused    [sha256.Size]byte
	refusedFor string
	history    pluggedHistory
}

// pluggedHistory is the record of which roots were trusted last, and before that.
type pluggedHistory struct {
	Format int `json:"v"` // 1
	// Signer is the root that signs.
	Signer string `json:"signer"`
	// Trusted are the ids of the roots of the bundle, and Before those of the one before it.
	Trusted []string `json:"trusted"`
	Before  []string `json:"before,omitempty"`
}

// start reads the files. Errors: the set cannot be used.
func (p *plugIn) start(ctx context.Context, now time.Time) error {
	if err := p.recall(ctx); err != nil {
		return err
	}
	files, err := readPluggedFiles(p.dir)
	if err != nil {
		return err
	}
	set, err := p.try(files, now)
	if err != nil {
		return err
	}
	return p.use(ctx, files, set, now)
}

// recall reads which roots were trusted before: those of a self-signed authority, if that was before.
func (p *plugIn) recall(ctx context.Context) (err error) {
	if p.history, err = readHistory(ctx, p.records); err != nil || p.history.Format != 0 {
		return err
	}
	st, version, err := stateStore{p.records}.read(ctx)
	if err == nil && version != "" {
		p.history = pluggedHistory{Format: 1, Signer: st.Active, Trusted: st.trusted()}
	}
	return err
}

// readHistory is the record of plugged-in roots; its Format is zero when there is none.
func readHistory(ctx context.Context, records record.Store) (h pluggedHistory, err error) {
	r, err := records.Get(ctx, record.Key{Table: table, Name: pluggedRecord})
	if err != nil || r.Version == "" {
		return h, err
	}
	if err := json.Unmarshal(r.Value, &h); err != nil {
		return h, fmt.Errorf("the record %s of table %s: %w: restore the store from a backup", pluggedRecord, table, err)
	}
	if h.Format != 1 {
		return h, fmt.Errorf("the record %s of table %s has format %d, this version reads 1: start the version that wrote it", pluggedRecord, table, h.Format)
	}
	return h, nil
}

// try makes an authority of files and sees that peers believe what it signs.
func (p *plugIn) try(files *pluggedFiles, now time.Time) (*Plugged, error) {
	set, err := files.parse(now)
	if err != nil {
		return nil, err
	}
	if err := set.trial(p.trustDomain, now, rand.Reader); err != nil {
		return nil, fmt.Errorf("%s: %w", p.dir, err)
	}
	return set, nil
}

// look takes a set that was put in place of the one in use, once it is whole, and says whether it took one. What is
// there in the middle of a replacement does not fit together; it is told of when the next look finds it unchanged.
func (p *plugIn) look(ctx context.Context, now time.Time) (bool, error) {
	files, err := readPluggedFiles(p.dir)
	sum := sha256.Sum256([]byte(fmt.Sprint(err)))
	if err == nil {
		if sum = files.sum(); sum == p.used {
			p.refused, p.refusedFor = [sha256.Size]byte{}, ""
			return false, nil
		}
		var set *Plugged
		if set, err = p.try(files, now); err == nil {
			return true, p.use(ctx, files, set, now)
		}
	}
	if p.refused != sum {
		p.refused, p.refusedFor = sum, ""
		return false, nil
	}
	if p.refusedFor == "" {
		p.log.Error("the plugged-in files are refused; the set read before stays in use", "folder", p.dir, "error", err)
		p.audit(audit.Event{Action: audit.CALoad, Actor: "ashored", Target: p.dir, Outcome: audit.Refused, Reason: err.Error()})
	}
	p.refusedFor = err.Error()
	return false, nil
}

// use signs with a set from now on, and records which roots it trusts.
func (p *plugIn) use(ctx context.Context, files *pluggedFiles, set *Plugged, now time.Time) error {
	h := pluggedHistory{Format: 1, Signer: RootID(set.Signer.Root)}
	for _, r := range set.Bundle.Roots {
		h.Trusted = append(h.Trusted, RootID(r))
	}
	if h.Before = p.history.Before; bundleID(h.Trusted) != bundleID(p.history.Trusted) {
		h.Before = p.history.Trusted
	}
	if !h.equal(p.history) {
		value, err := json.Marshal(h)
		if err == nil {
			err = p.records.Commit(ctx, record.Write{Key: record.Key{Table: table, Name: pluggedRecord}, Value: value, Version: record.Any})
		}
		if err != nil {
			return fmt.Errorf("record the roots of %s: %w", p.dir, err)
		}
	}
	if p.now != nil && p.now.Bundle.ID == set.Bundle.ID {
		set.Bundle = p.now.Bundle // equal ones keep their pointer
	}
	p.now, p.used, p.history, p.refusedFor = set, files.sum(), h, ""
	p.log.Info("plugged-in authority in use", "folder", p.dir, "certificate", title(set.Signer.Cert), "root", h.Signer, "roots", len(h.Trusted), "ends", set.Signer.Cert.NotAfter)
	for _, w := range append(set.ending(now), set.Warnings...) {
		p.log.Warn("plugged-in authority", "warning", w)
	}
	p.audit(audit.Event{Action: audit.CALoad, Actor: "ashored", Target: p.dir, Details: map[string]string{
		"root": h.Signer, "roots": strconv.Itoa(len(h.Trusted)), "serial": serialText(set.Signer.Cert), "notAfter": set.Signer.Cert.NotAfter.UTC().Format(time.RFC3339),
	}})
	return nil
}

func (h pluggedHistory) equal(o pluggedHistory) bool {
	return h.Format == o.Format && h.Signer == o.Signer && slices.Equal(h.Trusted, o.Trusted) && slices.Equal(h.Before, o.Before)
}

// stranded are the workloads that the set in use leaves behind: they hold a certificate that nobody trusts any more, or do
// not trust what is signed now.
func (h pluggedHistory) stranded(f Facts, now time.Time) []Waiting {
	longest := waits{}
	for _, l := range f.Leaves {
		switch {
		case !l.NotAfter.After(now):
		case !slices.Contains(h.Trusted, l.RootID):
			longest.add(l.Workload, "its certificate leads to a root that is not trusted any more", l.NotAfter)
		case l.BundleID == bundleID(h.Trusted), l.RootID == h.Signer: // a certificate comes with its root
		case l.BundleID == bundleID(h.Before) && slices.Contains(h.Before, h.Signer):
		default:
			longest.add(l.Workload, "does not trust the root that signs now", l.NotAfter)
		}
	}
	w := longest.list()
	slices.SortFunc(w, func(a, b Waiting) int { return strings.Compare(a.Name, b.Name) })
	return w
}

// strandedText is what to tell of workloads that this set strands; empty when there are none.
func (p *plugIn) strandedText(f Facts, now time.Time) string {
	return strandedText(p.history.stranded(f, now), "the plugged-in set", "Put the root that they know beside the new one into "+pluggedRoots+" and, until all have renewed, sign with the old authority")
}

// strandedText is what to tell of stranded workloads, by what, and what to do; empty when there are none.
func strandedText(w []Waiting, by, do string) string {
	if len(w) == 0 {
		return ""
	}
	names := make([]string, 0, 5)
	for _, x := range w[:min(len(w), 5)] {
		names = append(names, x.Name)
	}
	if len(w) > 5 {
		names = append(names, "…")
	}
	return fmt.Sprintf("%d workloads are stranded by %s (%s): %s. %s; those that cannot wait join again", len(w), by, strings.Join(names, ", "), w[0].Reason, do)
}
