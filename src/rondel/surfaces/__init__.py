"""Front ends. `session` and `commands` are what they share; a folder is one front end, which does IO only."""
