"""From logs to a prior: reading, tables, fits, report."""
