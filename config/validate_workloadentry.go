package config

func validateWorkloadEntry(c *checker) {}
