package strictyaml

import (
	"fmt"
	"strings"
)

// Places holds the lines of the settings in a file. The zero value and nil have no file.
type Places struct {
	file  string
	lines map[string]int // by the path of the setting
}

// Of returns the place of a setting, "a.yaml:3". For a setting that is not in the file it is the
// beginning of its section, or the file, "a.yaml". Empty without a file.
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

// File returns the name of the file. Empty without one.
func (p *Places) File() string {
	if p == nil {
		return ""
	}
	return p.file
}

// place returns a line of a file, or the file if line is zero.
func place(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}
