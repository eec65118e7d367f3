package relay

import (
	"context"
	"fmt"
	"time"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Types of the control stream.
const (
	configType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
	probeType  = "type.googleapis.com/istio.networking.v1alpha3.ReadinessProbe"
	namesType  = resource.NameTableType
	healthType = "type.googleapis.com/istio.v1.HealthInformation"
)

// control runs the control stream of a link until one of them ends, and returns the reason. The link
// is used from the first answer.
func (r *Relay) control(l *link) error {
	u, err := l.open()
	if err != nil {
		return err
	}
	defer u.close()
	for _, q := range r.controlRequests() {
		u.send(q)
	}
	silent := time.After(answerTimeout)
	accept := func() {
		if l.used.IsZero() {
			l.used, silent = time.Now(), nil
			r.use(l, nil)
		}
	}
	if r.cfg.Plaintext {
		accept()
	}
	var sent *request
	for {
		r.mu.Lock()
		changed, health := r.changed, r.health
		r.mu.Unlock()
		if health != sent {
			u.send(health)
			sent = health
		}
		select {
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		case <-r.cfg.Renewed:
			return errRenewed
		case <-silent:
			return fmt.Errorf("it accepts the connection and does not answer within %s", answerTimeout)
		case <-changed:
		case reply, ok := <-u.responses:
			if !ok {
				return *u.err
			}
			u.send(r.take(reply))
			accept()
		}
	}
}

// controlRequests returns the first requests of a control stream. They claim the version of the name
// table only: roots and probe are always sent, because the agent compares them with those in use.
func (r *Relay) controlRequests() []*request {
	all := []string{"*"}
	out := []*request{{TypeUrl: configType, Node: r.cfg.Node, ResourceNamesSubscribe: all}}
	if r.cfg.SetProbe != nil {
		out = append(out, &request{TypeUrl: probeType, ResourceNamesSubscribe: all})
	}
	if r.cfg.SetNames != nil {
		out = append(out, &request{TypeUrl: namesType, ResourceNamesSubscribe: all,
			InitialResourceVersions: r.cache.versions(namesType)})
	}
	return out
}

// take handles a response on the control stream and returns the answer.
func (r *Relay) take(reply *response) *request {
	answer := &request{TypeUrl: reply.TypeUrl, ResponseNonce: reply.Nonce}
	if err := r.apply(reply); err != nil {
		r.log.Warn("response rejected", "type", shortType(reply.TypeUrl), "error", err)
		answer.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
		return answer
	}
	r.cache.put(reply, &subscription{all: true})
	return answer
}

// apply passes the resources of a response to the Set functions.
func (r *Relay) apply(reply *response) error {
	switch reply.TypeUrl {
	case configType:
		return r.applyConfig(reply, r.cfg.SetRoots)
	case probeType:
		return r.applyProbe(reply)
	case namesType:
		for _, it := range reply.Resources {
			if err := r.cfg.SetNames(it.Resource.GetValue()); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("%s was not requested", reply.TypeUrl)
}

// applyConfig passes on the mesh's ProxyConfig, of which there is one.
func (r *Relay) applyConfig(reply *response, setRoots func(pem []string) error) error {
	for _, it := range reply.Resources {
		m := &meshv1alpha1.ProxyConfig{}
		if err := proto.Unmarshal(it.Resource.GetValue(), m); err != nil {
			return fmt.Errorf("read the ProxyConfig: %w", err)
		}
		if err := setRoots(m.GetCaCertificatesPem()); err != nil {
			return err
		}
		r.cfg.SetConfig(m)
	}
	return nil
}

// applyProbe passes on the probe of the workload's group. A response without one keeps the last
// probe: the group may be missing for a moment, or the control plane may not support probes.
func (r *Relay) applyProbe(reply *response) error {
	if len(reply.Resources) == 0 {
		if len(r.cache.versions(probeType)) > 0 {
			return nil
		}
		return r.cfg.SetProbe(nil)
	}
	for _, it := range reply.Resources {
		var m networkingv1.ReadinessProbe
		if err := proto.Unmarshal(it.Resource.GetValue(), &m); err != nil {
			return fmt.Errorf("read the probe of the WorkloadGroup: %w", err)
		}
		if err := r.cfg.SetProbe(&m); err != nil {
			return err
		}
	}
	return nil
}

// restoreControl applies what the cache file has, except roots: the identity on disk has newer
// ones.
func (r *Relay) restoreControl() {
	for _, typeURL := range []string{configType, probeType, namesType} {
		cached, _, err := r.cache.reply(typeURL, everything)
		switch {
		case err != nil || len(cached.Resources) == 0:
		case typeURL == configType:
			err = r.applyConfig(cached, func([]string) error { return nil })
		case typeURL == probeType && r.cfg.SetProbe == nil, typeURL == namesType && r.cfg.SetNames == nil:
		default:
			err = r.apply(cached)
		}
		if err != nil {
			r.log.Warn("cached resource rejected", "type", shortType(typeURL), "error", err)
		}
	}
}
