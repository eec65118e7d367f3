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
	// Bundles are the ids of the roots of the bundles before that, the latest last, at most
	// maxBundles: workloads may hold one of them still.
	Bundles [][]string `json:"bundles,omitempty"`
}

// maxBundles bounds the bundles that are remembered. Of who holds an older one the root of his
// certificate is what is known.
const maxBundles = 32

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

// recall reads which roots were trusted before: those of a self-signed authority, if that was
// before.
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
		return h, fmt.Errorf("the record %s of table %s: %w: restore the store from a backup", pluggedRecord, table,
			err)
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

// look takes a set that was put in place of the one in use, once it is whole, and says whether it
// took one. What is there in the middle of a replacement does not fit together; it is told of when
// the next look finds it unchanged.
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
		p.audit(audit.Event{Action: audit.CALoad, Actor: "ashored", Target: p.dir, Outcome: audit.Refused,
			Reason: err.Error()})
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
	h.Before, h.Bundles = p.history.Before, p.history.Bundles
	if bundleID(h.Trusted) != bundleID(p.history.Trusted) {
		h.Before, h.Bundles = p.history.Trusted, p.history.remembered()
	}
	if !h.equal(p.history) {
		value, err := json.Marshal(h)
		if err == nil {
			err = p.records.Commit(ctx, record.Write{Key: record.Key{Table: table, Name: pluggedRecord}, Value: value,
				Version: record.Any})
		}
		if err != nil {
			return fmt.Errorf("record the roots of %s: %w", p.dir, err)
		}
	}
	if p.now != nil && p.now.Bundle.ID == set.Bundle.ID {
		set.Bundle = p.now.Bundle // equal ones keep their pointer
	}
	p.now, p.used, p.history, p.refusedFor = set, files.sum(), h, ""
	p.log.Info("plugged-in authority in use", "folder", p.dir, "certificate", title(set.Signer.Cert), "root", h.Signer,
		"roots", len(h.Trusted), "ends", set.Signer.Cert.NotAfter)
	for _, w := range append(set.ending(now), set.Warnings...) {
		p.log.Warn("plugged-in authority", "warning", w)
	}
	p.audit(audit.Event{Action: audit.CALoad, Actor: "ashored", Target: p.dir, Details: map[string]string{
		"root": h.Signer, "roots": strconv.Itoa(len(h.Trusted)), "serial": serialText(set.Signer.Cert), "notAfter": set.Signer.Cert.NotAfter.UTC().Format(time.RFC3339),
	}})
	return nil
}

// remembered are the bundles before the current one's, without any that the current one or the one
// before it is.
func (h pluggedHistory) remembered() [][]string {
	if len(h.Before) == 0 {
		return h.Bundles
	}
	out := slices.DeleteFunc(slices.Clone(h.Bundles),
		func(b []string) bool { return bundleID(b) == bundleID(h.Before) })
	out = append(out, h.Before)
	return out[max(0, len(out)-maxBundles):]
}

func (h pluggedHistory) equal(o pluggedHistory) bool {
	return h.Format == o.Format && h.Signer == o.Signer && slices.Equal(h.Trusted, o.Trusted) &&
		slices.Equal(h.Before, o.Before) &&
		slices.EqualFunc(h.Bundles, o.Bundles, slices.Equal)
}

// believed are the roots that a workload holds: those of the bundle that it was offered or
// acknowledged last. Of one that holds another than is remembered it is the root that its
// certificate came with.
func (h pluggedHistory) believed(l LeafFact, offered string) []string {
	if offered != "" {
		l.BundleID = offered
	}
	for _, b := range append([][]string{h.Trusted, h.Before}, h.Bundles...) {
		if len(b) > 0 && bundleID(b) == l.BundleID {
			return b
		}
	}
	return []string{l.RootID}
}

// stranded are the workloads that cannot connect: they do not believe the root that signs now, and
// so not the certificate of the control plane. knows are roots that they believe. unbelieved are
// those that can connect, and whose certificate nobody believes until they have: its root is not
// trusted any more. Of each workload the latest certificate counts, for as long as it may come back
// with that.
func (h pluggedHistory) stranded(f Facts, now time.Time) (stranded, unbelieved []Waiting, knows []string) {
	last := map[string]LeafFact{} // those of one workload come in the order of their issue
	for _, l := range f.Leaves {
		last[l.Workload] = l
	}
	out, doubted := waits{}, waits{}
	for _, l := range last {
		back := l.NotAfter.Add(f.Grace)
		switch believed := h.believed(l, f.Offered[l.Workload]); {
		case !back.After(now):
		case !slices.Contains(believed, h.Signer):
			out.add(l.Workload, "does not believe the root that signs now", back)
			knows = append(knows, believed...)
		case l.NotAfter.After(now) && !slices.Contains(h.Trusted, l.RootID):
			doubted.add(l.Workload, "its certificate leads to a root that is not trusted any more", l.NotAfter)
		}
	}
	slices.Sort(knows)
	return byName(out.list()), byName(doubted.list()), slices.Compact(knows)
}

// byName sorts by names.
func byName(w []Waiting) []Waiting {
	slices.SortFunc(w, func(a, b Waiting) int { return strings.Compare(a.Name, b.Name) })
	return w
}

// problems are what to tell of workloads that a change of authority left behind; by is which. None
// when nobody is.
func (h pluggedHistory) problems(f Facts, now time.Time, by string) []string {
	var out []string
	stranded, unbelieved, knows := h.stranded(f, now)
	if len(stranded) > 0 {
		out = append(out, fmt.Sprintf("%d workloads are stranded by %s (%s): they do not believe the root that signs now, %s, and so not this control plane. Plug in an authority below a root that they believe (%s), "+
			"with that root and %s in %s; when nobody is named here any more, sign below the other root again. Those that cannot wait join again",
			len(stranded), by, someNames(stranded), h.Signer, someOf(knows), h.Signer, pluggedRoots))
	}
	if len(unbelieved) > 0 {
		out = append(out, fmt.Sprintf("%d workloads hold certificates that nobody believes (%s): their root is not trusted any more. They renew as soon as they are connected; if they do not, put that root beside the new one into %s until they have",
			len(unbelieved), someNames(unbelieved), pluggedRoots))
	}
	return out
}

// someNames are the names of the first few.
func someNames(w []Waiting) string {
	names := make([]string, len(w))
	for i, x := range w {
		names[i] = x.Name
	}
	return someOf(names)
}

// someOf are the first few, as people read them.
func someOf(names []string) string {
	const few = 5
	if len(names) > few {
		names = append(slices.Clone(names[:few]), "…")
	}
	return strings.Join(names, ", ")
}

// problems are what to tell of workloads that this set left behind.
func (p *plugIn) problems(f Facts, now time.Time) []string {
	return p.history.problems(f, now, "the plugged-in set")
}
