"""Counts what every engine call costs and enforces limits: rules, the ledger, the charged engine, prices."""
