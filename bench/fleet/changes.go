package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/internal/task"
)

// FileChanges are changes of the files that Shape.Write wrote into dir, which each of so many proxies
// receives: rounds of one endpoint, of one route and of one policy, and then a churn of many services.
func (s Shape) FileChanges(dir string, proxies, rounds, churn int) []Change {
	all := proxies
	if s.Scoped { // only those in the namespace of service 0
		proxies = 0
		for i := range all {
			if s.Namespace(i%s.Services) == s.Namespace(0) {
				proxies++
			}
		}
	}
	edit := func(phase, typeURL string, proxies int, marker string, edit func(marker string) error) Change {
		return Change{phase, typeURL, proxies, rounds, func(_ context.Context, round int, await func(string)) error {
			m := fmt.Sprintf(marker, round+1)
			await(m)
			return edit(m)
		}}
	}
	changes := []Change{
		edit("endpoint", EDS, proxies, "172.16.0.%d", func(ip string) error {
			return s.AddEndpoint(dir, 0, ip) // an address is text in an assignment
		}),
		edit("route", rdsType, proxies, "marker-round-%d", func(m string) error {
			return replace(dir, routeName(0), s.routeFile(0, m))
		}),
	}
	if s.Policies > 0 {
		changes = append(changes, edit("policy", ecdsType, all, "marker-policy-%d", func(m string) error {
			return replace(dir, policyName(0), s.policyFile(0, m))
		}))
	}
	// of namespace 0 when their number divides the services
	service := func(i int) int { return (i*7*s.Namespaces + s.Namespaces) % s.Services }
	return append(changes, Churn("churn", proxies, churn, 100*time.Millisecond, func(i int, ip string) error {
		return s.AddEndpoint(dir, service(i), ip)
	}))
}

// Churn is a phase in which so many changes are made at a fixed pace. change makes number i: it gives
// a service an endpoint with the address ip. The arrival of the last one closes the phase, and latency
// is counted from it.
func Churn(phase string, proxies, changes int, pace time.Duration, change func(i int, ip string) error) Change {
	return Change{phase, EDS, proxies, min(changes, 1), func(ctx context.Context, _ int, await func(string)) error {
		for i := range changes {
			if !task.Sleep(ctx, pace) {
				return ctx.Err()
			}
			ip := fmt.Sprintf("172.20.%d.%d", i>>8, i&0xff)
			if i == changes-1 {
				ip = "172.31.255.254"
				await(ip)
			}
			if err := change(i, ip); err != nil {
				return err
			}
		}
		return nil
	}}
}
