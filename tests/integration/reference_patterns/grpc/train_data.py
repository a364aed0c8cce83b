"""Fill a queue in a child process, serve it with gRPC, and end when the trainer connects to another port."""

import argparse
import multiprocessing
import os
import queue
import signal
import socket
from concurrent import futures

import grpc
import numpy

PORT, SHUTDOWN_PORT = 6000, 16000
SERVICE, METHOD = "patterns.Feed", "Examples"


def fill(batches, ended, size):
    random = numpy.random.default_rng(0)
    while not ended.is_set():
        batch = random.random((size, 8), dtype=numpy.float32)
        while not ended.is_set():
            try:
                batches.put(batch.tobytes(), timeout=1)
                break
            except queue.Full:
                continue


def serve(batches):
    def examples(request, context):
        while True:
            yield batches.get()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler = grpc.unary_stream_rpc_method_handler(examples)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    server.add_insecure_port(f"[::]:{PORT}")
    server.start()
    return server


def wait_for_shutdown():
    with socket.socket() as listener:
        listener.bind(("", SHUTDOWN_PORT))
        listener.listen(1)
        connection, address = listener.accept()
        connection.close()
        print(f"{address[0]} asked to end", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    arguments, _ = parser.parse_known_args()
    batches, ended = multiprocessing.Queue(maxsize=8), multiprocessing.Event()
    filler = multiprocessing.Process(target=fill, args=(batches, ended, arguments.batch_size))
    filler.start()
    server = serve(batches)
    wait_for_shutdown()
    ended.set()
    server.stop(1).wait()
    filler.join(1)
    filler.terminate()
    os.kill(os.getpid(), signal.SIGKILL)
