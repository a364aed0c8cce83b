"""Compute features of ads on all ranks."""

from mpi4py import MPI

clicks = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.Get_rank() + 1)
if MPI.COMM_WORLD.Get_rank() == 0:
    print(f"features of {MPI.COMM_WORLD.Get_size()} ranks, {clicks} clicks", flush=True)
