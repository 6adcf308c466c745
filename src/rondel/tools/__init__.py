"""The tools that come with Rondel."""
