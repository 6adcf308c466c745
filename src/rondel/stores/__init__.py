"""Implementations of the store contracts: `memory` for a test or a single run, `sqlite` for everything else."""
