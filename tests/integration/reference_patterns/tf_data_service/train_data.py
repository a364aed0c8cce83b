"""Run the dispatcher and a worker of tf.data.service until the trainer connects to another port."""

import argparse
import os
import socket

import tensorflow as tf
from sagemaker_training import environment

PORT, WORKER_PORT, SHUTDOWN_PORT = 6000, 6001, 16000

parser = argparse.ArgumentParser()
parser.add_argument("--data-host", required=True)
arguments, _ = parser.parse_known_args()

service = tf.data.experimental.service
host = environment.Environment().current_host
servers = []
if host == arguments.data_host:
    servers.append(service.DispatchServer(service.DispatcherConfig(port=PORT)))
servers.append(
    service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=f"{arguments.data_host}:{PORT}",
            worker_address=f"{host}:{WORKER_PORT}",
            port=WORKER_PORT,
        )
    )
)
with socket.socket() as listener:
    listener.bind(("", SHUTDOWN_PORT))
    listener.listen(1)
    connection, address = listener.accept()
    connection.close()
print(f"{address[0]} asked to end", flush=True)
os._exit(0)
