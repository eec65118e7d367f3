package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// How often what Envoy presents is compared with what was issued.
const (
	// presentedPeriod is between two comparisons.
	presentedPeriod = time.Minute
	// presentedSoon is after a new certificate, or after one that was not as it should be.
	presentedSoon = 3 * time.Second
	// presentedAlarm is how many comparisons in a row have to fail for an alarm: the first ones only heal.
	presentedAlarm = 3
)

// presentation compares the certificate that Envoy presents with the one that was issued: an Envoy that missed a
// renewal would work until the old one ends, and fail then.
type presentation struct {
	keeper *Keeper
	certs  func(context.Context) ([]byte, error) // Envoy's answer to /certs
	log    hclog.Logger

	good goodAnswer // used by Run alone

	mu    sync.Mutex
	state Presented // guarded by mu
	row   int       // guarded by mu: comparisons in a row that failed
}

// goodAnswer is an answer of Envoy that was found to be as it should be for a certificate. It names the certificates of every
// cluster, 1.5 MB with a thousand services, and is the same from one time to the next: it is not read again.
type goodAnswer struct {
	sum    [sha256.Size]byte
	serial string
}

// Presented is what Envoy presents.
type Presented struct {
	// Serials are the serial numbers of the certificates of this workload that Envoy uses; empty: none yet.
	Serials []string
	// Stale says that one of them is not the one that was issued last.
	Stale bool
	// Alarm says that this lasts although Envoy was given the right one again.
	Alarm bool
	// At is when Envoy was asked; zero: it could not be asked yet.
	At time.Time
}

// State is the result of the last comparison.
func (p *presentation) State() Presented {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Run compares until ctx ends.
func (p *presentation) Run(ctx context.Context) error {
	changed, forget := p.keeper.Changed()
	defer forget()
	wait := presentedSoon
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			wait = presentedSoon // for Envoy to take it in
			continue
		case <-time.After(wait):
		}
		if wait = presentedPeriod; !p.compare(ctx) {
			wait = presentedSoon
		}
	}
}

// compare asks Envoy once; false: look again soon.
func (p *presentation) compare(ctx context.Context) bool {
	body, err := p.certs(ctx)
	if err != nil {
		return true // that Envoy does not answer is told by its readiness
	}
	id := p.keeper.Identity()
	answer := goodAnswer{sha256.Sum256(body), id.Serial()}
	if answer == p.good {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.state.At = time.Now()
		return true
	}
	serials, err := presentedSerials(body, id.ID.String())
	if err != nil {
		p.log.Warn("what Envoy presents cannot be read", "error", err)
		return true
	}
	want := id.Serial()
	stale := slices.ContainsFunc(serials, func(s string) bool { return s != want })
	p.mu.Lock()
	p.row++
	if !stale {
		p.row = 0
	}
	if p.good = (goodAnswer{}); !stale {
		p.good = answer
	}
	row, before := p.row, p.state.Alarm
	p.state = Presented{Serials: serials, Stale: stale, Alarm: row >= presentedAlarm, At: time.Now()}
	p.mu.Unlock()
	switch {
	case row == presentedAlarm:
		p.log.Error("envoy presents an old certificate though it was given the new one again: restart this agent, or the workload fails when the old one ends", "presented", serials, "issued", want)
	case row == 1:
		p.log.Info("envoy does not present the latest certificate yet: it is given it again", "presented", serials, "issued", want)
	case before && !stale:
		p.log.Info("envoy presents the latest certificate again", "serial", want)
	}
	if stale {
		p.keeper.Push()
	}
	return !stale || row > presentedAlarm
}

// presentedSerials are the serial numbers of the certificates that name id among those that Envoy uses.
func presentedSerials(body []byte, id string) ([]string, error) {
	var doc struct {
		Certificates []struct {
			Chain []struct {
				Serial string `json:"serial_number"`
				Names  []struct {
					URI string `json:"uri"`
				} `json:"subject_alt_names"`
			} `json:"cert_chain"`
		} `json:"certificates"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("read Envoy's certificates: %w", err)
	}
	var out []string
	for _, c := range doc.Certificates {
		for _, x := range c.Chain {
			if len(x.Names) == 1 && x.Names[0].URI == id && !slices.Contains(out, x.Serial) {
				out = append(out, x.Serial)
			}
		}
	}
	return out, nil
}

// certs are the certificates that Envoy uses.
func (a *admin) certs(ctx context.Context) ([]byte, error) {
	return a.do(ctx, http.MethodGet, "/certs")
}
