package config

func validateGateway(c *checker) {}
