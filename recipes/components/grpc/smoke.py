"""Checks of gRPC."""

from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version


def installed() -> str:
    return version("grpcio")


def check_answers_a_call() -> None:
    import grpc

    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request * 2)
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("check", {"Double": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert channel.unary_unary("/check/Double")(b"ab", timeout=20) == b"abab"
    server.stop(0)
