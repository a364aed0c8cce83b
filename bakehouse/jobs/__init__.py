"""Settings of jobs: findings, and code for the SDKs. Start at `job_spec`."""
