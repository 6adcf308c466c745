"""Who runs jobs: `local` runs them in this process."""
