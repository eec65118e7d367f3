package feed

import (
	"fmt"
	"time"
)

// Key identifies an item among all sources.
type Key interface {
	comparable
	fmt.Stringer
}

// Config says how a Merger keeps items.
type Config[K Key, T any] struct {
	// KeyOf returns the key of an item; required.
	KeyOf func(T) K
	// Settle is how long an item that no source supplies any more stays (R3). Zero: it is removed at once.
	Settle time.Duration
	// MassRemoval is how long items stay that a source lost together with most of its others (R4). Zero: until they return
	// or AcceptRemovals is called.
	MassRemoval time.Duration
}

// SourceConfig is one source of a Merger.
type SourceConfig struct {
	// Name is Source.Name.
	Name string
	// Required means that serving waits until the source has delivered, or has content from before the restart.
	Required bool
	// MaxAge is how long items of a source that is down are used. Zero: without limit.
	MaxAge time.Duration
	// DropStale removes the items of the source after MaxAge. Otherwise they stay, and a problem says so.
	DropStale bool
}

// Merger holds the latest content of every group of every source, and what is retained of former content. It has no clock and
// no goroutine: one goroutine owns it, and passes the time.
//
// Of several items with one key the first source of the list is used, within a source the first group by name, and
// within a group the first item. So the order of arrival does not matter.
type Merger[K Key, T any] struct{}

// NewMerger returns a merger without sources.
func NewMerger[K Key, T any](cfg Config[K, T]) *Merger[K, T]

// SetSources replaces the list of sources, most important first. Groups of a source that is not in the list any more are removed
// once all required sources have delivered, as R3 says. It returns the keys whose items changed, in no order.
func (m *Merger[K, T]) SetSources(list []SourceConfig, now time.Time) (changed []K)

// Restore puts in groups that were saved before a restart. Call it once, after the first SetSources and before Apply. Saved groups of
// sources that are not in the list are kept as SetSources says.
func (m *Merger[K, T]) Restore(saved []SavedGroup[T], now time.Time)

// Apply takes in a batch and returns the keys whose items changed, in no order. A batch of a source that is not in the list is
// ignored.
func (m *Merger[K, T]) Apply(b Batch[T], now time.Time) (changed []K)

// Expire ends retention that is due, and returns the keys whose items changed.
func (m *Merger[K, T]) Expire(now time.Time) (changed []K)

// NextExpiry is when to call Expire next; zero: not before the next Apply.
func (m *Merger[K, T]) NextExpiry() time.Time

// AcceptRemovals removes all items of a source that R3 and R4 retain, and returns the keys whose items changed.
func (m *Merger[K, T]) AcceptRemovals(source string, now time.Time) (changed []K)

// Supply is an item and where it comes from.
type Supply[T any] struct {
	Source, Group string
	Item          T
	// Retained is why an item is used that its source does not supply any more; empty: it supplies it.
	Retained string
}

// Items lists all that is supplied for k, the one that is used first.
func (m *Merger[K, T]) Items(k K) []Supply[T]

// Waiting lists the required sources that have not delivered and have no content from before the restart, in the order of
// the list.
func (m *Merger[K, T]) Waiting() []string

// SourceStatus describes a source for operators.
type SourceStatus struct {
	Name string `json:"name"`
	// Required means that serving waits for the source.
	Required bool `json:"required"`
	// Synced means that the source has delivered its first Full batch since the start.
	Synced bool `json:"synced"`
	// Items and Problems count what the source supplies and what is wrong with it. Retained counts the items that are used
	// although the source does not supply them any more.
	Items    int `json:"items"`
	Problems int `json:"problems"`
	Retained int `json:"retained,omitempty"`
	// Stale counts the groups whose current content cannot be used, so that older content is.
	Stale int `json:"stale,omitempty"`
	// LastUpdate is when the source last sent content.
	LastUpdate time.Time `json:"lastUpdate,omitzero"`
	// Error is why the source is down, since ErrorSince; empty: it is not.
	Error      string    `json:"error,omitempty"`
	ErrorSince time.Time `json:"errorSince,omitzero"`
	// LastError is the latest error that is over, since LastErrorEnd; empty: there was none.
	LastError    string    `json:"lastError,omitempty"`
	LastErrorEnd time.Time `json:"lastErrorEnd,omitzero"`
	// Reading is Batch.Reading.
	Reading int `json:"reading,omitempty"`
	// Setting is the name of the source in the settings file. The merger does not know it.
	Setting string `json:"setting,omitempty"`
}

// Status describes all sources, in the order of the list. Its cost does not depend on the number of groups.
func (m *Merger[K, T]) Status() []SourceStatus

// Problems lists all that is wrong: the problems of groups, sources that are down, items that are retained, and keys that several
// groups define. In no order; see SortProblems. describe says where an item was defined, such as a file and line.
func (m *Merger[K, T]) Problems(describe func(T) string) []Problem

// SavedGroup is a group as it is saved across restarts.
type SavedGroup[T any] struct {
	Source, Group string
	// Removed means that the group is to be deleted from what was saved.
	Removed bool
	Items   []T
	// The rest is H1's to define: retained items with reason and time, invalid keys, since when the group is unreadable.
}

// TakeChanged returns the groups that changed since it was called last, for a Writer.
func (m *Merger[K, T]) TakeChanged() []SavedGroup[T]
