package shared

import (
	"time"

	"github.com/hashicorp/go-hclog"
)

// sign is this replica's own, but for how often it said that it is alive.
func (r *Runtime) sign() sign {
	return sign{Format: format, Name: r.cfg.Replica, Address: r.cfg.Address, Advertise: r.cfg.Advertise, Member: r.cfg.Member}
}

// sayThere logs that the record of a replica is there which was not before.
func (r *Runtime) sayThere(s sign) {
	if s.kin(r.sign()) {
		r.cfg.Log.Info("a record of this replica from before its start is there", "replica", s.Name, "address", s.Address)
		return
	}
	r.cfg.Log.Info("another replica is there", "replica", s.Name, "address", s.Address)
}

// sayGone logs that the record of a replica is gone: its farewell, or it was lost long ago.
func (x *replica) sayGone(log hclog.Logger) {
	switch {
	case x.former:
		log.Debug("the record of a former run is gone", "replica", x.Name, "address", x.Address)
	case !x.lost.IsZero():
		log.Info("a replica that was lost is forgotten", "replica", x.Name, "address", x.Address)
	default:
		log.Info("a replica has ended", "replica", x.Name, "address", x.Address)
	}
}

// sayLost logs that nothing is heard of a replica, or that this is no wonder.
func (r *Runtime) sayLost(x *replica, silent time.Duration) {
	facts := []any{"replica", x.Name, "address", x.Address, "silent", silent.Round(time.Second), "grace", r.cfg.LostGrace}
	own := r.left(x)
	switch x.former = own || r.startedAgain(x); {
	case own:
		r.cfg.Log.Info("the former run of this replica is over: the workloads that it had count until their proxies have connected again", facts...)
	case x.former:
		r.cfg.Log.Info("the former run of a replica is over: it was started again, and the workloads that it had count until their proxies have connected again", facts...)
	default:
		r.cfg.Log.Warn("a replica is lost: its workloads count until their proxies have turned to another", facts...)
	}
}

// counts says whether a replica is one of those that are alive as people count them. What a former run has left is none, although it
// is thought to be alive until it has been silent for long enough, and neither is a record that this one began with and that nobody
// has stood up for since.
func (r *Runtime) counts(x *replica) bool {
	heard := !x.early || x.beaten || x.cutOff
	return x.lost.IsZero() && heard && !r.left(x) && !r.startedAgain(x)
}

// left says that a record is what a former run of this replica has left, as far as is known.
func (r *Runtime) left(x *replica) bool { return !x.beaten && x.kin(r.sign()) }

// startedAgain says that a replica of which nothing is heard was started again since. Two that were there together, as with a
// copy of a state folder, are no runs of one.
func (r *Runtime) startedAgain(x *replica) bool {
	for _, y := range r.replicas {
		if y != x && y.kin(x.sign) && !y.came.Before(x.changed) && y.heard.After(x.changed) {
			return true
		}
	}
	return false
}

// kin says whether two signs are of one replica: the authority calls both the same, or, where it calls neither anything, both
// have one address.
func (s sign) kin(other sign) bool {
	if s.Member != "" || other.Member != "" {
		return s.Member == other.Member
	}
	return s.Address != "" && s.Address == other.Address
}
