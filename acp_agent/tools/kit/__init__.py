"""The kit that tools are made of: the contract, the table, schemas, errors."""
