package consul

import "testing"

// The index of Consul only ever leads to a query that can be answered.
func TestGuard(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		last, got, next uint64
		want            verdict
	}{
		"the first":                            {0, 7, 7, newer},
		"a change":                             {7, 9, 9, newer},
		"the end of the wait":                  {7, 7, 7, same},
		"backwards, after a restoration":       {700, 12, 0, restarted},
		"backwards by one":                     {7, 6, 0, restarted},
		"zero, for which nobody may wait":      {7, 0, 0, uncounted},
		"zero again":                           {0, 0, 0, uncounted},
		"the largest":                          {7, 1<<64 - 1, 1<<64 - 1, newer},
		"after the restoration, a first again": {0, 12, 12, newer},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guard{index: tc.last}
			if got := g.take(tc.got); got != tc.want || g.index != tc.next {
				t.Errorf("got %v and %d, want %v and %d", got, g.index, tc.want, tc.next)
			}
		})
	}
}
