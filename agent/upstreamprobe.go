package agent

import (
	"bytes"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// toldProbe is what is known of the probe of the workload's group.
type toldProbe struct {
	some bool   // a control plane said something, or the copy knows
	used []byte // the last one that was taken, encoded; nil: none was
}

// askProbe asks for the probe of the workload's group. None is claimed: who takes it compares.
func (l *upstreamLink) askProbe() {
	i := ads.NewInterest(probeTypeURL, nil)
	i.Want(true, nil)
	l.up.interests = append(l.up.interests, i)
}

// hearProbe hands on the probe of the workload's group, and acknowledges it once it was taken. A group without one has an
// empty one. Nothing at all is what a control plane says that does not know of probes, or of the group any more: then the
// one that was told before holds.
func (p *proxy) hearProbe(l *upstreamLink, reply *ads.Reply) {
	var err error
	for _, it := range reply.Items {
		if err = p.takeProbe(it.Body); err != nil {
			p.log.Warn("the application is not probed as its group says", "error", err)
			break
		}
	}
	if len(reply.Items) == 0 {
		p.noProbe()
	}
	var rejected *ads.Rejection
	if err != nil {
		rejected = &ads.Rejection{Code: int32(codes.InvalidArgument), Message: err.Error()}
	}
	p.locked(func() {
		if i := l.up.find(probeTypeURL); i != nil {
			i.Take(reply)
			i.Answer(rejected)
		}
	})
}

// takeProbe hands on a probe. Errors: why it is not used.
func (p *proxy) takeProbe(body []byte) (err error) {
	var m networking.ReadinessProbe
	if err := proto.Unmarshal(body, &m); err != nil {
		return fmt.Errorf("read the probe of the WorkloadGroup: %w", err)
	}
	p.locked(func() {
		p.probe.some = true
		if err = p.cfg.SetProbe(&m); err != nil || p.probe.used != nil && bytes.Equal(p.probe.used, body) {
			return
		}
		p.probe.used = append([]byte{}, body...)
		p.relay.version++ // the copy misses it
	})
	return err
}

// noProbe says that no control plane tells a probe, unless one did before.
func (p *proxy) noProbe() {
	p.locked(func() {
		if !p.probe.some {
			_ = p.cfg.SetProbe(nil) // none cannot be refused
		}
	})
}

// restoreProbe takes in the probe that a copy has, of that group.
func (p *proxy) restoreProbe(group string, body []byte) {
	if p.cfg.SetProbe == nil || body == nil || group != p.cfg.Group {
		return
	}
	p.probe.used = body // it is in the copy
	if err := p.takeProbe(body); err != nil {
		p.probe.used = nil
		p.log.Warn("the application is not probed as its group said", "error", err)
	}
}
