package vip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

const (
	// tableName is the table of records. The name of a record is its IPv4 address, so the store
	// prevents two hosts from getting the same one.
	tableName = "vip"
	// batch is the greatest number of records in one write.
	batch = 256
	// unusedFor is how long a host must be unused by all replicas before Release frees its address.
	unusedFor = 7 * 24 * time.Hour
)

// allocation is the value of a record.
type allocation struct {
	Host string `json:"host"`
	// Used is when a replica last marked the host as used. Replicas do so once a day.
	Used time.Time `json:"used"`

	index   int
	version string
}

func (a allocation) name() string { return address(a.index).IPv4.String() }

// table is the content of the records.
type table struct {
	byHost  map[string]allocation
	byIndex map[int]bool
}

// readTable reads all records.
func readTable(ctx context.Context, records record.Store) (table, error) {
	list, err := records.List(ctx, tableName)
	if err != nil {
		return table{}, fmt.Errorf("read virtual IPs: %w", err)
	}
	t := table{byHost: make(map[string]allocation, len(list)), byIndex: make(map[int]bool, len(list))}
	for _, r := range list {
		a := allocation{version: r.Version}
		ip, err := netip.ParseAddr(r.Name)
		index, ok := indexOf(ip)
		if err == nil && ok {
			t.byIndex[index] = true
		}
		if err != nil || !ok || json.Unmarshal(r.Value, &a) != nil || a.Host == "" {
			continue // a damaged record: its host gets another address
		}
		a.index = index
		if _, ok := t.byHost[a.Host]; !ok { // of two records, all replicas use the lower address
			t.byHost[a.Host] = a
		}
	}
	return t, nil
}

// vips returns the virtual IPs by host.
func (t table) vips() (out registry.VIPs) {
	for host, a := range t.byHost {
		out = out.With(pmap.String(host), address(a.index))
	}
	return out
}

// allocate returns allocations for the hosts that have none, at most batch. It returns
// ErrExhausted, with the possible allocations, if there are not enough addresses.
func (t table) allocate(hosts []string, now time.Time) (out []allocation, err error) {
	for _, host := range hosts {
		if _, has := t.byHost[host]; has {
			continue
		}
		index, err := choose(host, func(i int) bool { return t.byIndex[i] })
		if err != nil {
			return out, err
		}
		t.byIndex[index] = true
		if out = append(out, allocation{Host: host, Used: now, index: index}); len(out) == batch {
			break
		}
	}
	return out, nil
}

// unmarked returns the allocations of hosts that were not marked as used for a day, at most batch.
func (t table) unmarked(hosts []string, now time.Time) (out []allocation) {
	for _, host := range hosts {
		if a, has := t.byHost[host]; has && now.Sub(a.Used) > 24*time.Hour && len(out) < batch {
			a.Used = now
			out = append(out, a)
		}
	}
	return out
}

// write writes allocations, all or none. It returns record.ErrConflict if another replica wrote one
// of them.
func write(ctx context.Context, records record.Store, list []allocation) error {
	writes := make([]record.Write, len(list))
	for i, a := range list {
		value, err := json.Marshal(a)
		if err != nil {
			return err
		}
		writes[i] = record.Write{Key: record.Key{Table: tableName, Name: a.name()}, Value: value, Version: a.version}
	}
	return records.Commit(ctx, writes...)
}

// Release frees the addresses of hosts that no replica has used for a week, and returns those
// hosts, sorted. They are not nil unless an error is returned.
func Release(ctx context.Context, records record.Store, now time.Time) (released []string, err error) {
	t, err := readTable(ctx, records)
	if err != nil {
		return nil, err
	}
	released = []string{} // in JSON [], not null
	for host, a := range t.byHost {
		if now.Sub(a.Used) <= unusedFor {
			continue
		}
		err := records.Commit(ctx, record.Write{Key: record.Key{Table: tableName, Name: a.name()}, Version: a.version})
		if errors.Is(err, record.ErrConflict) { // a replica uses it again
			continue
		}
		if err != nil {
			return released, fmt.Errorf("release the virtual IP of %s: %w", host, err)
		}
		released = append(released, host)
	}
	slices.Sort(released)
	return released, nil
}
