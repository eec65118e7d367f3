package registry

import (
	"encoding/json"
	"errors"
	"fmt"
)

// EncodeInstances writes services with their endpoints as JSON that DecodeInstances reads back as equal ones.
func EncodeInstances(all []Instances) ([]byte, error) { return json.Marshal(all) }

// DecodeInstances reads what EncodeInstances wrote. Errors say why it cannot be used; then nothing of it is.
func DecodeInstances(b []byte) ([]Instances, error) {
	var all []Instances
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	for i, in := range all {
		if err := in.complete(); err != nil {
			return nil, fmt.Errorf("service %d: %w", i, err)
		}
	}
	return all, nil
}

// complete says what is missing that every service has.
func (in Instances) complete() error {
	switch s := in.Service; {
	case s == nil:
		return errors.New("there is none")
	case s.Host == "":
		return errors.New("it has no host")
	case len(s.Ports) == 0:
		return fmt.Errorf("%s has no port", s.Host)
	}
	for i := range in.Endpoints.All() {
		if in.Endpoints.Items[i].Address == "" {
			return fmt.Errorf("endpoint %d of %s has no address", i, in.Service.Host)
		}
	}
	return nil
}
