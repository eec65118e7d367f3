package intercept

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Status describes what is installed.
type Status struct {
	// Installed says that connections are intercepted. Draining says that only open connections go
	// through Envoy.
	Installed bool `yaml:"installed"`
	Draining  bool `yaml:"draining"`
	// Confirmed is when the checks succeeded; zero: the rules are not installed at boot.
	Confirmed time.Time `yaml:"confirmed,omitempty"`
	// Counters are packets since the rules were installed: outbound, inbound, refused, dns.
	Counters map[string]uint64 `yaml:"packets"`
	// Settings are those that were confirmed.
	Settings Settings `yaml:"settings"`
}

// Status reads the rules and the record.
func (m Machine) Status(ctx context.Context) (Status, error) {
	s := Status{Counters: map[string]uint64{}}
	r, err := m.Record()
	if err != nil {
		return s, err
	}
	if r != nil {
		s.Confirmed, s.Settings = r.Confirmed, r.Config.Settings
	}
	tables, err := nft(ctx, "", "list", "tables")
	if err != nil || !hasTable(tables) {
		return s, err
	}
	text, err := nft(ctx, "", "-j", "list", "table", "inet", "ashore")
	if err != nil {
		return s, err
	}
	var doc struct {
		Nftables []struct {
			Counter *struct {
				Name    string
				Packets uint64
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return s, fmt.Errorf("nft -j list table inet ashore: %w", err)
	}
	for _, o := range doc.Nftables {
		if o.Counter != nil {
			s.Counters[o.Counter.Name] = o.Counter.Packets
		}
	}
	s.Installed = len(s.Counters) > 0
	s.Draining = !s.Installed
	return s, nil
}

func hasTable(list string) bool {
	for line := range strings.Lines(list) {
		if strings.TrimSpace(line) == "table inet ashore" {
			return true
		}
	}
	return false
}
