package build

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestRead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		packaged string
		in       debug.BuildInfo
		want     Info
	}{
		{"release", "", debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Version: "v1.2.3"}}, Info{"v1.2.3", "", "go1"}},
		{"work tree", "", debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"}}}, Info{"dev", "0123456789ab+changes", "go1"}},
		{"packaged", "1.2.4", debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Version: "(devel)"}}, Info{"1.2.4", "", "go1"}},
		{"not recorded", "", debug.BuildInfo{GoVersion: "go1"}, Info{"dev", "", "go1"}},
	} {
		if got := read(&tc.in, tc.packaged); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	if got := Read(); got.Go != runtime.Version() || got.Version == "" {
		t.Errorf("this program: %+v", got)
	}
}
