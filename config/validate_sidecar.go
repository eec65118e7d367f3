package config

func validateSidecar(c *checker) {}
