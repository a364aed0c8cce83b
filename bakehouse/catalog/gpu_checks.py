"""Names of the smoke checks that use GPUs; image look-up needs them too, so this module imports nothing."""

EFA_BANDWIDTH = "efa_bandwidth"
GPU_CHECKS = ("nccl_all_reduce", "nccl_2_hosts", "gpu", "mpirun_nccl", EFA_BANDWIDTH)
"""Smoke checks that fail or are not tested without a GPU. No other check counts as a test on GPUs."""
