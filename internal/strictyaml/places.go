package strictyaml

import (
	"fmt"
	"strings"
)

// Places are where the settings of a file stand. The zero value, and nil, know no file.
type Places struct {
	file  string
	lines map[string]int // by the path of the setting
}

// Of is the place of a setting, "a.yaml:3". A setting that the file does not have is placed where
// its section begins, or nowhere in the file: "a.yaml". Empty without a file.
func (p *Places) Of(setting string) string {
	if p == nil {
		return ""
	}
	for at := setting; ; {
		line, i := p.lines[at], strings.LastIndexByte(at, '.')
		if line != 0 || i < 0 {
			return place(p.file, line)
		}
		at = at[:i]
	}
}

// File is what the file is called; empty without one.
func (p *Places) File() string {
	if p == nil {
		return ""
	}
	return p.file
}

// place is a line of a file; without one it is the file.
func place(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}
