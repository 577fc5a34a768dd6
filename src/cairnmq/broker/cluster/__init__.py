"""A broker as one of a cluster: what it tells the metadata store and hears from it, and the roles that follow."""
