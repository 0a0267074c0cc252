"""Language models. `base` defines the contract; providers are rows of a table, loaded lazily."""
