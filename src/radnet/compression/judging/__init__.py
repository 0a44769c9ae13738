"""Whether two models are the same function: what is tried, how it is compared, what is certified."""
