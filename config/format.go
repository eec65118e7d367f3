package config

import (
	"slices"
	"strings"
)

// checkFormat says what is wrong with a text in which Envoy replaces %COMMANDS%: the values of
// headers, and the format of access logs. One that Envoy does not know makes it refuse the whole
// listener or route configuration. Source:
// https://www.envoyproxy.io/docs/envoy/v1.40.0/configuration/advanced/substitution_formatter
func checkFormat(format string) string {
	if !strings.Contains(format, "%") {
		return ""
	}
	commands := newCommands()
	for {
		begin := strings.IndexByte(format, '%')
		if begin < 0 {
			return ""
		}
		format = format[begin+1:]
		if rest, escaped := strings.CutPrefix(format, "%"); escaped {
			format = rest
			continue
		}
		rest, why := commands.cut(format)
		if why != "" {
			return why
		}
		format = rest
	}
}

// commands are those of stock Envoy 1.40: without arguments, with arguments where one likes, and
// with needed ones; unlimited are those with arguments that take no length. Expressions (CEL) and
// code are left out: they could not be checked here.
type commands struct{ plain, optional, required, unlimited []string }

// cut checks the command after an opening "%", and returns what follows its closing one.
func (c commands) cut(s string) (rest, why string) {
	end := 0
	for end < len(s) && (s[end] == '_' || 'A' <= s[end] && s[end] <= 'Z' || '0' <= s[end] && s[end] <= '9') {
		end++
	}
	name := s[:end]
	if name == "" {
		return "", "a single % begins a command such as %PROTOCOL%; write %% for the sign itself"
	}
	s = s[end:]
	arguments, length := "", false
	parentheses := strings.HasPrefix(s, "(")
	if parentheses {
		end := argumentsEnd(s)
		if end < 0 {
			return "", "the arguments of %" + name + "( have no end: write )% after them"
		}
		arguments, s = s[1:end-1], s[end:]
	}
	if strings.HasPrefix(s, ":") {
		const most = 9 // digits
		rest := strings.TrimLeft(s[1:], "0123456789")
		if digits := len(s) - 1 - len(rest); strings.HasPrefix(rest, "%") && (digits == 0 || digits > most) {
			return "", "the length of %" + name + " is a number of at most 9 digits"
		}
		s, length = rest, true
	}
	if !strings.HasPrefix(s, "%") {
		return "", "the command %" + name + " has no end: write % after it, or %% for the sign itself"
	}
	return s[1:], c.check(name, arguments, parentheses, length)
}

// check is the rule for one command, which may be followed by parentheses and a length.
func (c commands) check(name, arguments string, parentheses, length bool) string {
	switch {
	case slices.Contains(c.plain, name):
		if parentheses || length {
			return "the command %" + name + "% takes no arguments and no length"
		}
	case slices.Contains(c.required, name) && arguments == "":
		return "the command %" + name + "% needs arguments, as in %" + name + "(…)%"
	case !slices.Contains(c.optional, name) && !slices.Contains(c.required, name):
		return "Envoy has no command %" + shorten(name) + "%" + didYouMean(name,
			slices.Concat(c.plain, c.optional, c.required))
	case length && (slices.Contains(c.unlimited, name)):
		return "the command %" + name + "% takes no length"
	case arguments != "":
		return checkArguments(name, arguments)
	}
	return ""
}

// argumentsEnd is where the arguments that begin s end, after their ")"; negative when they do not.
func argumentsEnd(s string) int {
	for i := 1; i < len(s); i++ {
		if s[i] == ')' && i+1 < len(s) && (s[i+1] == '%' || s[i+1] == ':') {
			return i + 1
		}
	}
	return -1
}

// newCommands is the table.
func newCommands() commands {
	plain := strings.Fields(`
		ACCESS_LOG_TYPE BYTES_RECEIVED BYTES_RETRANSMITTED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS CUSTOM_FLAGS
		DOWNSTREAM_DETECTED_CLOSE_TYPE DOWNSTREAM_DIRECT_LOCAL_ADDRESS DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID
		DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_LOCAL_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS
		DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_PORT DOWNSTREAM_HANDSHAKE_DURATION
		DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_HEADER_BYTES_SENT DOWNSTREAM_LOCAL_ADDRESS
		DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_CLOSE_REASON
		DOWNSTREAM_LOCAL_DNS_SAN DOWNSTREAM_LOCAL_EMAIL_SAN DOWNSTREAM_LOCAL_IP_SAN DOWNSTREAM_LOCAL_OTHERNAME_SAN
		DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_CERT
		DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1 DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256 DOWNSTREAM_PEER_CHAIN_SERIALS
		DOWNSTREAM_PEER_DNS_SAN DOWNSTREAM_PEER_EMAIL_SAN DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_FINGERPRINT_256
		DOWNSTREAM_PEER_IP_SAN DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_OTHERNAME_SAN DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT
		DOWNSTREAM_PEER_URI_SAN DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_REMOTE_PORT
		DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_GROUP DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_VERSION
		DOWNSTREAM_TRANSPORT_FAILURE_REASON DOWNSTREAM_WIRE_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT DURATION FILTER_CHAIN_NAME
		GRPC_STATUS_NUMBER HOSTNAME LOCAL_REPLY_BODY PROTOCOL REQUESTED_SERVER_NAME REQUEST_DURATION REQUEST_HEADERS_BYTES
		REQUEST_TX_DURATION RESPONSE_CODE RESPONSE_CODE_DETAILS RESPONSE_DURATION RESPONSE_FLAGS RESPONSE_FLAGS_LONG
		RESPONSE_HEADERS_BYTES RESPONSE_TRAILERS_BYTES RESPONSE_TX_DURATION ROUNDTRIP_DURATION ROUTE_NAME SPAN_ID STREAM_ID
		TLS_JA3_FINGERPRINT TLS_JA4_FINGERPRINT TRACE_ID UNIQUE_ID UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW UPSTREAM_CONNECTION_ID
		UPSTREAM_CONNECTION_IDS_ATTEMPTED UPSTREAM_CONNECTION_POOL_READY_DURATION UPSTREAM_DETECTED_CLOSE_TYPE
		UPSTREAM_HEADER_BYTES_RECEIVED UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HOST UPSTREAM_HOSTS_ATTEMPTED
		UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT UPSTREAM_HOST_NAME UPSTREAM_HOST_NAMES_ATTEMPTED
		UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_LOCAL_ADDRESS
		UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT UPSTREAM_LOCAL_CLOSE_REASON UPSTREAM_LOCAL_DNS_SAN UPSTREAM_LOCAL_IP_SAN
		UPSTREAM_LOCAL_PORT UPSTREAM_LOCAL_URI_SAN UPSTREAM_PEER_CERT UPSTREAM_PEER_DNS_SAN UPSTREAM_PEER_IP_SAN
		UPSTREAM_PEER_ISSUER UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_URI_SAN UPSTREAM_PROTOCOL UPSTREAM_REMOTE_ADDRESS
		UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT UPSTREAM_REMOTE_PORT
		UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_SERVER_NAME UPSTREAM_TLS_CIPHER UPSTREAM_TLS_GROUP UPSTREAM_TLS_SESSION_ID
		UPSTREAM_TLS_VERSION UPSTREAM_TRANSPORT_FAILURE_REASON UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_WIRE_BYTES_SENT
		VIRTUAL_CLUSTER_NAME`)
	optional := strings.Fields(`
		DOWNSTREAM_PEER_CERT_V_END DOWNSTREAM_PEER_CERT_V_START EMIT_TIME EMIT_TIME_LOCAL GRPC_STATUS PATH QUERY_PARAMS START_TIME
		START_TIME_LOCAL UPSTREAM_PEER_CERT_V_END UPSTREAM_PEER_CERT_V_START`)
	required := strings.Fields(`
		CLUSTER_METADATA COMMON_DURATION DYNAMIC_METADATA ENVIRONMENT FILTER_STATE METADATA QUERY_PARAM REQ REQUEST_HEADER RESP
		RESPONSE_HEADER RESPONSE_TRAILER TRAILER UPSTREAM_FILTER_STATE UPSTREAM_METADATA`)
	unlimited := strings.Fields(`
		CLUSTER_METADATA COMMON_DURATION DOWNSTREAM_PEER_CERT_V_END DOWNSTREAM_PEER_CERT_V_START EMIT_TIME EMIT_TIME_LOCAL
		GRPC_STATUS START_TIME START_TIME_LOCAL UPSTREAM_METADATA UPSTREAM_PEER_CERT_V_END UPSTREAM_PEER_CERT_V_START`)
	return commands{plain, optional, required, unlimited}
}
