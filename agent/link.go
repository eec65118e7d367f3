package agent

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"
)

// link stands between Envoy and the control planes: Envoy's configuration comes through it.
type link interface {
	localService
	// Run speaks with the control planes until ctx ends.
	Run(ctx context.Context) error
	// ReportHealth tells the control plane how the application is, now and after each reconnect.
	ReportHealth(Health)
	// LinkState says how it stands.
	LinkState() LinkState
}

// linkMaker makes the link of a workload.
type linkMaker func(s *Settings, k *Keeper, log hclog.Logger) (link, error)

// LinkState is how the connection with the control planes stands.
type LinkState struct {
	// Address is the control plane that is connected; empty: none.
	Address string `json:"address,omitempty"`
	// Since is when it was connected, or since when none is.
	Since time.Time `json:"since"`
	// Trouble is why none is; empty when one is.
	Trouble string `json:"trouble,omitempty"`
	// CopyFrom is when the configuration that Envoy has was last known to be the control plane's, when it comes from
	// the copy on disk; zero: it is live.
	CopyFrom time.Time `json:"copyFrom,omitzero"`
	// Rejected is what Envoy refused of its configuration, in its words; empty: nothing.
	Rejected string `json:"rejected,omitempty"`
}

// newLink is the product's.
func newLink(*Settings, *Keeper, hclog.Logger) (link, error) {
	return nil, errors.New("this build has no way to the control plane for a workload with an identity; --dev is plaintext")
}
