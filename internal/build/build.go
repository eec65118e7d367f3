package build

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// version is set by the linker when packages are built.
var version string

// Info describes a build.
type Info struct {
	// Version is that of the packages, "0.3.0", else what the compiler recorded, "v0.3.0", or "dev"
	// for a build from a work tree.
	Version string `json:"version"`
	// Commit is the revision of the sources, with "+changes" if the tree was not clean. Empty if
	// the build did not record it.
	Commit string `json:"commit,omitempty"`
	// Go is the compiler's version.
	Go string `json:"go"`
}

// String returns one line for people: "v0.3.0 (0123456789ab) go1.26".
func (i Info) String() string {
	if i.Commit == "" {
		return i.Version + " " + i.Go
	}
	return i.Version + " (" + i.Commit + ") " + i.Go
}

// Read returns the information that the compiler recorded in this program.
func Read() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{Version: "dev", Go: runtime.Version()}
	}
	return read(info, version)
}

func read(info *debug.BuildInfo, packaged string) Info {
	out := Info{Version: cmp.Or(packaged, info.Main.Version), Go: info.GoVersion}
	if out.Version == "" || out.Version == "(devel)" {
		out.Version = "dev"
	}
	changes := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			out.Commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changes = "+changes"
		}
	}
	if out.Commit != "" {
		out.Commit += changes
	}
	return out
}
