package config

func validateVirtualService(c *checker) {}
