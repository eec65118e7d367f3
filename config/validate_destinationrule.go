package config

func validateDestinationRule(c *checker) {}
