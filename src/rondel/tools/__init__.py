"""The tools that come with Rondel. Each stands alone."""
