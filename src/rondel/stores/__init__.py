"""Where conversations and pending jobs are kept: `memory` for a test or a single run, `sqlite` for everybody."""
