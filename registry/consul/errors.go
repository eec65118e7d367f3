package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

// answerError is an error about the content of an answer.
type answerError string

func (e answerError) Error() string { return string(e) }

const (
	errNotConsul = answerError("the answer does not come from Consul: check that address is Consul's HTTP interface")
	errNoOwnName = answerError("the token cannot read the service consul, which has the name of the agent's datacenter: " +
		"give the token node:read and service:read for it")
)

// Substrings of Consul's error responses. Source: Consul, agent/http_ce.go (parseEntMetaPartition),
// agent/consul/rpc.go (ErrNoDCPath), and github.com/hashicorp/go-bexpr for filters.
const (
	textBadFilter  = "boolean expression evaluator"
	textEnterprise = "Consul Enterprise feature"
	textNoPath     = "No path to datacenter"
)

// explain describes a query error and its remedy.
func (c *client) explain(err error) string {
	var status api.StatusError
	if errors.As(err, &status) {
		return c.explainStatus(status.Code, consulhttp.OneLine(status.Body))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("Consul at %s does not answer in time: check that it and its servers are running", c.o.Address)
	}
	if _, ok := errors.AsType[answerError](err); ok {
		return fmt.Sprintf("Consul at %s: %v", c.o.Address, err)
	}
	return fmt.Sprintf("Consul at %s cannot be reached: %s", c.o.Address, c.o.TLS.Explain(err))
}

// explainStatus describes an HTTP error response and its remedy.
func (c *client) explainStatus(code int, text string) string {
	remedy := "check that its servers have a leader"
	switch {
	case code == http.StatusForbidden || code == http.StatusUnauthorized:
		return fmt.Sprintf("Consul refuses the token (%d, %s): write one with %s into tokenFile (%s)", code, text, c.needs,
			cmp.Or(c.o.TokenFile, "none is set"))
	case code == http.StatusTooManyRequests:
		remedy = "use an https address, which needs few connections, or raise limits.http_max_conns_per_client in Consul"
	case consulhttp.WantsTLS(code, text):
		remedy = "write https:// in address"
	case c.o.Filter != "" && strings.Contains(text, textBadFilter):
		remedy = fmt.Sprintf("correct the option filter, %q", c.o.Filter)
	case strings.Contains(text, textEnterprise):
		remedy = "this Consul is not Enterprise; remove partition and namespaces from the settings"
	case strings.Contains(text, textNoPath):
		remedy = "check the name of the datacenter, and that its servers are running and joined with these"
	case code < 400 || code == http.StatusNotFound:
		remedy = "check that address is Consul's HTTP interface"
	case code < 500:
		remedy = "check the settings of the source"
	}
	return fmt.Sprintf("Consul at %s answers %d (%s): %s", c.o.Address, code, text, remedy)
}
