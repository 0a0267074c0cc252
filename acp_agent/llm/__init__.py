"""Language models. `base` holds the contract; the providers behind it are rows of a lazy table."""
