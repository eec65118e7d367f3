package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// responseFlag is a response flag of Envoy's access log and of the label response_flags.
type responseFlag struct {
	Flag    string `json:"flag"`
	Status  string `json:"status"` // the one that clients usually get
	Meaning string `json:"meaning"`
	Next    string `json:"next"` // what to do
}

// responseFlags are the flags in the order of how often operators meet them. Source: Envoy,
// "Access logging", %RESPONSE_FLAGS%.
func responseFlags() []responseFlag {
	return []responseFlag{
		{"-", "any", "Envoy adds nothing: the application answered, or a policy denied (403)",
			"for 403: ashorectl authz explain FROM HOST[:PORT]"},
		{"UH", "503", "no healthy endpoint", "ashorectl get endpoints HOST; on the callee: ashore-agent status"},
		{"NC", "503", "the route names a cluster that the proxy does not have",
			"ashorectl problems: a VirtualService names an unknown host, port or subset"},
		{"NR", "404", "no route for the host or path", "ashorectl explain request FROM HOST[:PORT] --path PATH"},
		{"UF", "503", "no connection to the endpoint, or its TLS handshake failed",
			"is the application or its Envoy down, a firewall in between, or the certificate expired? ashore-agent status"},
		{"UC", "503", "the endpoint closed the connection before it answered",
			"STRICT mutual TLS and a plaintext caller, or the application closes idle connections first"},
		{"URX", "503", "the request failed although it was retried",
			"the flag beside it names the cause; see retries of the VirtualService"},
		{"UT", "504", "the endpoint did not answer in time", "timeout of the VirtualService, or a slow application"},
		{"UO", "503", "a limit of pending requests, requests or connections was reached",
			"connectionPool of the DestinationRule, or more endpoints"},
		{"DC", "0", "the client closed the connection", "the client's timeout is shorter than the response takes"},
		{"DR", "0", "the client cancelled the request (HTTP/2, gRPC)",
			"the client's deadline is shorter than the response takes"},
		{"UR", "503", "the endpoint reset the stream", "the log of the application"},
		{"LR", "503", "the proxy itself reset the connection",
			"the log of Envoy: ashore-agent proxy-log --level http:debug"},
		{"DF", "503", "the name of the endpoint does not resolve", "DNS on the caller's machine"},
		{"UAEX", "403", "the provider of a CUSTOM policy denied the request, or does not answer",
			"ashorectl authz explain FROM HOST[:PORT]; is the provider up?"},
		{"FI", "as set", "a VirtualService injects this error", "fault.abort of the VirtualService"},
		{"DI", "any", "a VirtualService delayed the request", "fault.delay of the VirtualService"},
		{"RL", "429", "a rate limit was exceeded", "the rate limit's settings"},
		{"RLSE", "500", "the rate limit service failed", "the log of the rate limit service"},
		{"SI", "408, 504", "a stream was idle for too long", "nothing moved for longer than the idle timeout"},
		{"DT", "504", "a request or connection reached its maximum duration", "the limit of its duration"},
		{"UMSDR", "408", "the stream to the endpoint reached its maximum duration", "maxStreamDuration"},
		{"LH", "503", "the health check of Envoy itself fails", "ashore-agent status"},
		{"IH", "400", "a header of Envoy's own has an invalid value", "the headers x-envoy-* of the request"},
		{"NFCF", "500", "the settings of a filter did not arrive in time", "ashorectl status: is the proxy connected?"},
		{"DPE", "400", "the client's bytes are not valid HTTP",
			"is the port's protocol right, or does the client speak TLS?"},
		{"UPE", "502", "the endpoint's bytes are not valid HTTP",
			"is the protocol of the service's port right (name or appProtocol)?"},
		{"OM", "503", "Envoy is overloaded and refuses work", "memory and CPU of the machine"},
	}
}

func (t *tool) explainFlagsCommand() *cobra.Command {
	var known []string
	for _, f := range responseFlags() {
		known = append(known, f.Flag)
	}
	return &cobra.Command{
		Use:   "flags [FLAG]...",
		Short: "Explain Envoy's response flags, and what to do next",
		Example: `  ashorectl explain flags
  ashorectl explain flags UF,URX
  ashorectl explain flags UH -o json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			asked := strings.FieldsFunc(strings.ToUpper(strings.Join(args, ",")), func(r rune) bool { return r == ',' })
			var out []responseFlag
			tb := newTable("FLAG", "STATUS", "MEANING", "WHAT TO DO")
			for _, f := range responseFlags() {
				if len(asked) == 0 || slices.Contains(asked, f.Flag) {
					out = append(out, f)
					tb.add(f.Flag, f.Status, f.Meaning, f.Next)
				}
			}
			for _, a := range asked {
				if !slices.Contains(known, a) {
					return usage(cmd, fmt.Errorf("unknown flag %q: known are %s", a, strings.Join(known, " ")))
				}
			}
			return t.print(cmd, out, tb.String())
		},
		ValidArgsFunction: words(known...),
	}
}
