"""A broker among others: what it tells the metadata store, what it hears, and the roles that follow for its journals."""
