"""Topics, settings and ids: a small store with revisions, and decisions over it. May import codec and below."""
