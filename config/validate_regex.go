package config

import (
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
)

// regex checks a regular expression. Proxies use RE2, whose syntax is nearly Go's.
func (c *checker) regex(path, expression string) *regexp.Regexp {
	const limit = 1024
	switch {
	case expression == "":
		c.errorf(path, "the regular expression is empty")
		return nil
	case len(expression) > limit:
		c.errorf(path, "the regular expression has more than %d characters", limit)
		return nil
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		c.errorf(path, "not a regular expression of RE2's syntax: %s",
			strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		return nil
	}
	if why := checkEscapes(expression); why != "" {
		c.errorf(path, "not a regular expression of the proxies' syntax: %s", why)
	} else if size := programSize(expression); size > maxProgram {
		c.errorf(path, "the regular expression is too large for proxies: its repetitions make %d steps of it, more than %d", size, maxProgram)
	}
	return re
}

// maxProgram is the largest program that an expression may become in a proxy. Source: the runtime
// key re2.max_program_size.error_level in the bootstrap that the agent writes, as in Istio's.
const maxProgram = 32768

// programSize is how many steps RE2 needs for an expression, about: one for each range of
// characters. Envoy compiles for bytes, so that ranges beyond them do not count.
func programSize(expression string) int {
	const lastByte = 0xff
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return 0 // reported
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0 // reported
	}
	size := 0
	for _, step := range program.Inst {
		size++
		for i := 2; i < len(step.Rune) && step.Rune[i] <= lastByte; i += 2 {
			size++
		}
	}
	return size
}

// checkEscapes refuses what Go reads and Envoy's RE2 does not: later names of character classes,
// names that are written another way, and characters that are no byte.
func checkEscapes(expression string) string {
	for i := 0; i+1 < len(expression); i++ {
		if expression[i] != '\\' {
			continue
		}
		i++
		rest := expression[i+1:]
		switch expression[i] {
		case 'Q': // plain text up to \E
			end := strings.Index(rest, `\E`)
			if end < 0 {
				return ""
			}
			i += end
		case 'p', 'P':
			if name, _, ok := strings.Cut(strings.TrimPrefix(rest, "{"), "}"); ok && rest[0] == '{' &&
				!isCharacterClass(strings.TrimPrefix(name, "^")) {
				return "they know no characters of the class " + quote(name)
			}
		case 'x':
			if hex, _, ok := strings.Cut(strings.TrimPrefix(rest, "{"), "}"); ok && rest[0] == '{' {
				if n, err := strconv.ParseUint(hex, 16, 32); err == nil && n > 0xff {
					return "\\x{" + hex + "} is no byte: write the character itself"
				}
			}
		}
	}
	return ""
}

// isCharacterClass says that RE2 knows a class of characters: by the letters of a category, or the
// name of a script.
func isCharacterClass(name string) bool {
	if name == "Cn" || name == "LC" {
		return false
	}
	if unicode.Categories[name] != nil && len(name) <= 2 || name == "Any" {
		return true
	}
	return unicode.Scripts[name] != nil
}
