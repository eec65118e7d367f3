package config

import (
	"regexp"
	"strings"
)

// regex checks a regular expression. Proxies use RE2, whose syntax is nearly Go's.
func (c *checker) regex(path, expression string) {
	const limit = 1024
	switch {
	case expression == "":
		c.errorf(path, "the regular expression is empty")
	case len(expression) > limit:
		c.errorf(path, "the regular expression has more than %d characters", limit)
	default:
		if _, err := regexp.Compile(expression); err != nil {
			c.errorf(path, "not a regular expression of RE2's syntax: %s",
				strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
}
