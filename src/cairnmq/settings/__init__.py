"""Names, types, defaults and checks of every setting. Pure; imports errors and types only."""
