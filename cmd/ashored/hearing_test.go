package main

import (
	"strings"
	"testing"
)

// Who revokes is told who hears of it: of several replicas each tells its own proxies, and that
// none is at this one is no alarm.
func TestHearing(t *testing.T) {
	t.Parallel()
	const nobody = "WARNING: no proxy is connected that could be told: nobody hears of it until one connects"
	for name, tc := range map[string]struct {
		h    hearing
		want string // the beginning
		more string
	}{
		"nobody":                            {hearing{}, nobody, ""},
		"nobody, and the store was lost":    {hearing{lost: true}, nobody, "has to join again"},
		"one":                               {hearing{here: 1}, "1 proxy is connected and hears of it", ""},
		"two":                               {hearing{here: 2}, "2 proxies are connected and hear of it", ""},
		"all at other replicas":             {hearing{there: 2, others: 2}, "no proxy is connected to this replica; 2 proxies are connected to other replicas, which tell theirs", ""},
		"here and there":                    {hearing{here: 2, there: 1, others: 1}, "2 proxies are connected to this replica and hear of it; 1 proxy is connected to other replicas, which tell theirs", ""},
		"here, beside other replicas":       {hearing{here: 1, others: 1}, "1 proxy is connected to this replica and hears of it", ""},
		"nobody, beside other replicas":     {hearing{others: 1}, "WARNING: no proxy is connected to this replica, and none that registered to another one", "ashorectl status"},
		"not shared":                        {hearing{here: 2, there: 1, others: 1, alone: true}, "2 proxies are connected to this replica and hear of it; the other replicas know nothing of it before the store has it", ""},
		"not shared, all at other replicas": {hearing{there: 1, others: 1, alone: true}, "WARNING: no proxy is connected to this replica that could be told", "know nothing of it before"},
	} {
		if got := tc.h.String(); !strings.HasPrefix(got, tc.want) || !strings.Contains(got, tc.more) || tc.more == "" &&
			!strings.HasPrefix(tc.want, "WARNING") && got != tc.want {
			t.Errorf("%s: %q, want %q with %q", name, got, tc.want, tc.more)
		}
	}
}
