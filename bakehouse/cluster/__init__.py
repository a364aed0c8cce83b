"""Run jobs on local containers, for `smoke` and `run`. Start at `smoke`."""
