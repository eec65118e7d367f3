package bolt

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// A store that cannot be written is neither down nor stale: its content is current. A problem says so until it is over.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		// begin and end take from the store that it can be written, and give it back.
		begin, end func(*Store) error
		want       string
	}{
		"full disk": {
			begin: func(s *Store) error { s.judge(fmt.Errorf("write: %w", unix.ENOSPC), 100); return nil },
			end:   func(s *Store) error { s.judge(nil, 100); return nil },
			want:  "make room on the disk",
		},
		"file moved away": {
			begin: func(s *Store) error { defer s.look(); return os.Rename(s.path, s.path+".moved") },
			end:   func(s *Store) error { defer s.look(); return os.Rename(s.path+".moved", s.path) },
			want:  "moved away to",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, Config{Dir: t.TempDir()})
			if _, err := s.Put(t.Context(), configtest.Object("a", "a.test"), "x"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, ended := make(chan feed.Batch[*config.Object]), make(chan error, 1)
			go func() { ended <- s.Run(ctx, out) }()
			m := feed.NewMerger(feed.Config[config.Key, *config.Object]{KeyOf: func(o *config.Object) config.Key { return o.Key }})
			m.SetSources([]feed.SourceConfig{{Name: s.Name()}}, time.Now())
			m.Apply(heard(t, out), time.Now())
			if err := tt.begin(s); err != nil {
				t.Fatal(err)
			}
			m.Apply(heard(t, out), time.Now())
			st, problems := m.Status()[0], m.Problems(nil)
			if st.Error != "" || st.Stale > 0 || st.Problems != 1 {
				t.Errorf("its status is %+v, want one problem, and neither down nor stale", st)
			}
			if len(problems) != 1 || problems[0].Severity != feed.Error || problems[0].Stale || problems[0].Since.IsZero() || problems[0].Field != Unwritable || !strings.Contains(problems[0].Text, tt.want) {
				t.Errorf("told is %+v, want %q", problems, tt.want)
			}
			if err := tt.end(s); err != nil {
				t.Fatal(err)
			}
			m.Apply(heard(t, out), time.Now())
			if st, problems := m.Status()[0], m.Problems(nil); len(problems) > 0 || st.Error != "" || st.LastError != "" {
				t.Errorf("when it is over it stands as %+v, %+v", st, problems)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
