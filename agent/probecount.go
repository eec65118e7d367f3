package agent

// counter makes states of single results.
type counter struct {
	up, down int // thresholds
	known    bool
	healthy  bool
	row      int // results in a row that speak against the state
}

// count takes in one result; changed says that h is another state than before, or the first.
func (c *counter) count(err error) (h Health, changed bool) {
	well := err == nil
	if c.known && well == c.healthy {
		c.row = 0
		return Health{}, false
	}
	if !c.known && c.row > 0 && well != c.healthy {
		c.row = 0
	}
	if !c.known {
		c.healthy = well
	}
	c.row++
	need := c.down
	if well {
		need = c.up
	}
	if c.row < need {
		return Health{}, false
	}
	c.known, c.healthy, c.row = true, well, 0
	h.Healthy = well
	if err != nil {
		h.Reason = err.Error()
	}
	return h, true
}
