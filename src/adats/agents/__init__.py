"""Who decides: choices, tasks, priors of tasks, policies, propensities."""
