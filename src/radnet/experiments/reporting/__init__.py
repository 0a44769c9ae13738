"""What is made of the trials: `results` as data and tables, the `report` as text, the `page` with its `pictures`."""
