"""The forms of files that people write: TOML and YAML, each read with the line of every value."""
