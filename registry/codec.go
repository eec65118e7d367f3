package registry

import (
	"encoding/json"
	"errors"
	"fmt"
)

// UnmarshalJSON implements json.Unmarshaler. It returns an error if a required field is missing.
func (in *Instances) UnmarshalJSON(b []byte) error {
	type plain Instances
	if err := json.Unmarshal(b, (*plain)(in)); err != nil {
		return err
	}
	return in.complete()
}

// complete returns an error if a required field is missing.
func (in Instances) complete() error {
	switch s := in.Service; {
	case s == nil:
		return errors.New("there is no service")
	case s.Host == "":
		return errors.New("the service has no host")
	case len(s.Ports) == 0:
		return fmt.Errorf("%s has no port", s.Host)
	}
	for i := range in.Endpoints.All() {
		if ep := &in.Endpoints.Items[i]; ep.Address == "" && ep.Network == "" {
			return fmt.Errorf("endpoint %d of %s has no address", i, in.Service.Host)
		}
	}
	return nil
}
