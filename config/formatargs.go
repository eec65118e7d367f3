package config

import (
	"slices"
	"strings"
)

// checkArguments is the rule for the arguments of a command in a format, as Envoy has it.
func checkArguments(name, arguments string) string {
	parts := strings.Split(arguments, ":")
	switch name {
	case "REQ", "REQUEST_HEADER", "RESP", "RESPONSE_HEADER", "TRAILER", "RESPONSE_TRAILER":
		return checkHeaderArgument(name, arguments)
	case "FILTER_STATE", "UPSTREAM_FILTER_STATE":
		return checkStateArguments(name, parts)
	case "GRPC_STATUS":
		return checkChoice(name, arguments, "CAMEL_STRING", "SNAKE_STRING", "NUMBER")
	case "QUERY_PARAMS":
		return checkChoice(name, arguments, "ORIG", "DECODED")
	case "METADATA":
		return checkChoice(name, parts[0], "DYNAMIC", "CLUSTER", "ROUTE", "UPSTREAM_HOST", "LISTENER",
			"LISTENER_FILTER_CHAIN", "VIRTUAL_HOST")
	case "PATH":
		if why := checkChoice(name, parts[0], "WQ", "NQ"); why != "" || len(parts) < 2 {
			return why
		}
		return checkChoice(name, parts[1], "ORIG", "PATH", "ORIG_OR_PATH")
	case "COMMON_DURATION":
		if len(parts) != 2 && len(parts) != 3 {
			return "the arguments of the command %COMMON_DURATION% are two points of time and a unit, as in %COMMON_DURATION(DS_RX_BEG:DS_RX_END:ms)%"
		}
		if len(parts) == 3 {
			return checkChoice(name, parts[2], "ms", "us", "ns")
		}
	}
	return ""
}

// checkChoice is the rule for an argument that is a choice.
func checkChoice(name, argument string, choices ...string) string {
	if slices.Contains(choices, argument) {
		return ""
	}
	return "among the arguments of the command %" + name + "% is one of " + strings.Join(choices,
		", ") + ", not " + quote(argument)
}

// checkHeaderArgument is the rule for the name of a header, behind "?" that of one that stands in
// for it.
func checkHeaderArgument(name, argument string) string {
	header, other, _ := strings.Cut(argument, "?")
	for _, h := range []string{header, other} {
		switch {
		case strings.Contains(h, "?"):
			return "the command %" + name + "% takes a header and one that stands in for it, as in %" + name + "(a?b)%"
		case h != "" && !isHeaderToken(strings.TrimPrefix(h, ":")):
			return quote(h) + " in the command %" + name + "% is not the name of a header"
		}
	}
	return ""
}

// checkStateArguments is the rule for what names a filter's state: its key, then how it is written.
func checkStateArguments(name string, parts []string) string {
	switch {
	case parts[0] == "":
		return "the command %" + name + "% needs the key of a state, as in %" + name + "(key:PLAIN)%"
	case len(parts) == 1 || len(parts) == 2 && parts[1] == "":
		return ""
	case len(parts) == 3 && parts[1] == "FIELD":
		return ""
	case len(parts) == 2:
		return checkChoice(name, parts[1], "PLAIN", "TYPED", "FIELD:…")
	default:
		return "the arguments of the command %" + name + "% are a key and PLAIN, TYPED or FIELD:name"
	}
}
