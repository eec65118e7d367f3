package config

func validateServiceEntry(c *checker) {}
