package config

import (
	"regexp"
	"strings"
)

// checkFormat checks the syntax of a text in which Envoy replaces %COMMANDS%: the values of headers
// and the format of access logs. Envoy itself rejects unknown commands and wrong arguments. An
// argument has no line break (Envoy 1.40, tried). Source:
// https://www.envoyproxy.io/docs/envoy/v1.40.0/configuration/advanced/substitution_formatter
func checkFormat(format string) string {
	if !strings.Contains(format, "%") {
		return ""
	}
	command := regexp.MustCompile(`%%|%[A-Z0-9_]+(\(.*?\))?(:[0-9]{1,9})?%`)
	_, wrong, found := strings.Cut(command.ReplaceAllString(format, ""), "%")
	if !found {
		return ""
	}
	return quote("%"+wrong) + " is not a command such as %PROTOCOL%, %REQ(X-ID)% or %REQ(X-ID):20%: write %% for the sign itself"
}
