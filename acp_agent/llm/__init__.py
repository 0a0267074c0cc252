"""Language models. `base` holds the contract; providers are rows of a lazy table."""
