package config

import (
	"slices"
	"strings"
)

// checkFormat says what is wrong with a text in which Envoy replaces %COMMANDS%: the values of
// headers, and the format of access logs. One that Envoy does not know makes it refuse the whole
// listener or route configuration.
// Source: https://www.envoyproxy.io/docs/envoy/v1.40.0/configuration/advanced/substitution_formatter
func checkFormat(format string) string {
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
		rest, why := cutCommand(format)
		if why != "" {
			return why
		}
		format = rest
	}
}

// cutCommand checks the command after an opening "%", and returns what follows its closing one.
func cutCommand(s string) (rest, why string) {
	end := 0
	for end < len(s) && (s[end] == '_' || 'A' <= s[end] && s[end] <= 'Z' || '0' <= s[end] && s[end] <= '9') {
		end++
	}
	name := s[:end]
	if name == "" {
		return "", "a single % begins a command such as %PROTOCOL%; write %% for the sign itself"
	}
	s = s[end:]
	arguments := false
	if strings.HasPrefix(s, "(") {
		// an argument may hold a parenthesis; the command ends at the first ")" before ":" or "%"
		end := argumentsEnd(s)
		if end < 0 {
			return "", "the arguments of %" + name + "( have no end: write )% after them"
		}
		s, arguments = s[end:], true
	}
	if strings.HasPrefix(s, ":") {
		s = strings.TrimLeft(s[1:], "0123456789")
	}
	if !strings.HasPrefix(s, "%") {
		return "", "the command %" + name + " has no end: write % after it, or %% for the sign itself"
	}
	plain, withArguments := formatCommands()
	switch {
	case slices.Contains(withArguments, name):
		if !arguments && name != "START_TIME" && name != "EMIT_TIME" && name != "START_TIME_LOCAL" && name != "EMIT_TIME_LOCAL" {
			return "", "the command %" + name + "% needs arguments, as in %" + name + "(…)%"
		}
	case slices.Contains(plain, name):
		if arguments && !strings.HasSuffix(name, "_SAN") {
			return "", "the command %" + name + "% takes no arguments"
		}
	default:
		return "", "Envoy has no command %" + shorten(name) + "%" + didYouMean(name, append(plain, withArguments...))
	}
	return s[1:], ""
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

// formatCommands are those of stock Envoy 1.40, without the ones of extensions that need settings.
func formatCommands() (plain, withArguments []string) {
	plain = strings.Fields(`
		ACCESS_LOG_TYPE BYTES_RECEIVED BYTES_RETRANSMITTED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS CUSTOM_FLAGS
		DOWNSTREAM_DETECTED_CLOSE_TYPE DOWNSTREAM_DIRECT_LOCAL_ADDRESS DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT
		DOWNSTREAM_DIRECT_LOCAL_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT
		DOWNSTREAM_DIRECT_REMOTE_PORT DOWNSTREAM_HANDSHAKE_DURATION DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_HEADER_BYTES_SENT
		DOWNSTREAM_LOCAL_ADDRESS DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_CLOSE_REASON DOWNSTREAM_LOCAL_DNS_SAN
		DOWNSTREAM_LOCAL_EMAIL_SAN DOWNSTREAM_LOCAL_IP_SAN DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN
		DOWNSTREAM_PEER_CERT DOWNSTREAM_PEER_DNS_SAN DOWNSTREAM_PEER_EMAIL_SAN DOWNSTREAM_PEER_FINGERPRINT_1
		DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_IP_SAN DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT
		DOWNSTREAM_PEER_URI_SAN DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_REMOTE_PORT
		DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_VERSION DOWNSTREAM_TRANSPORT_FAILURE_REASON
		DOWNSTREAM_WIRE_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT DURATION FILTER_CHAIN_NAME GRPC_STATUS_NUMBER HOSTNAME
		LOCAL_REPLY_BODY PROTOCOL REQUESTED_SERVER_NAME REQUEST_DURATION REQUEST_HEADERS_BYTES REQUEST_TX_DURATION RESPONSE_CODE
		RESPONSE_CODE_DETAILS RESPONSE_DURATION RESPONSE_FLAGS RESPONSE_FLAGS_LONG RESPONSE_HEADERS_BYTES RESPONSE_TRAILERS_BYTES
		RESPONSE_TX_DURATION ROUNDTRIP_DURATION ROUTE_NAME STREAM_ID TLS_JA3_FINGERPRINT TLS_JA4_FINGERPRINT TRACE_ID UNIQUE_ID
		UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW UPSTREAM_CONNECTION_ID UPSTREAM_CONNECTION_POOL_READY_DURATION
		UPSTREAM_DETECTED_CLOSE_TYPE UPSTREAM_HEADER_BYTES_RECEIVED UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HOST UPSTREAM_HOST_NAME
		UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT UPSTREAM_LOCAL_CLOSE_REASON
		UPSTREAM_LOCAL_DNS_SAN UPSTREAM_LOCAL_IP_SAN UPSTREAM_LOCAL_PORT UPSTREAM_LOCAL_URI_SAN UPSTREAM_PEER_CERT
		UPSTREAM_PEER_DNS_SAN UPSTREAM_PEER_IP_SAN UPSTREAM_PEER_ISSUER UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_URI_SAN
		UPSTREAM_PROTOCOL UPSTREAM_REMOTE_ADDRESS UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT UPSTREAM_REMOTE_PORT
		UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_TLS_CIPHER UPSTREAM_TLS_SESSION_ID UPSTREAM_TLS_VERSION
		UPSTREAM_TRANSPORT_FAILURE_REASON UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_WIRE_BYTES_SENT VIRTUAL_CLUSTER_NAME`)
	withArguments = strings.Fields(`
		CLUSTER_METADATA COMMON_DURATION DOWNSTREAM_PEER_CERT_V_END DOWNSTREAM_PEER_CERT_V_START DYNAMIC_METADATA EMIT_TIME
		EMIT_TIME_LOCAL ENVIRONMENT FILTER_STATE GRPC_STATUS METADATA PATH QUERY_PARAM REQ REQUEST_HEADER RESP RESPONSE_HEADER
		RESPONSE_TRAILER START_TIME START_TIME_LOCAL TRAILER UPSTREAM_FILTER_STATE UPSTREAM_METADATA`)
	return plain, withArguments
}
