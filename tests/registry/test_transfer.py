import time

import pytest

from bakehouse.registry.transfer import Fault, Layers, StallPolicy, TransferError, fault_in

FOREVER = float("inf")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "push access denied, repository does not exist or may require authorization: "
            "authorization failed: no basic auth credentials",
            Fault.UNAUTHORIZED,
        ),
        ("unexpected status from HEAD request to https://x: 401 Unauthorized", Fault.UNAUTHORIZED),
        ("denied: Your authorization token has expired. Reauthenticate and try again.", Fault.UNAUTHORIZED),
        ("unexpected status from POST request to https://x: 403 Forbidden", Fault.DENIED),
        ("denied: User: arn:x is not authorized to perform: ecr:PutImage", Fault.DENIED),
        (
            "name unknown: The repository with name 'x' does not exist in the registry with id '1'",
            Fault.MISSING,
        ),
        ("unexpected status from POST request to https://x: 404 Not Found", Fault.MISSING),
        ("unexpected status from PUT request to http://x: 500 Internal Server Error", Fault.TRANSIENT),
        ("received unexpected HTTP status: 503 Service Unavailable", Fault.TRANSIENT),
        ("toomanyrequests: Rate exceeded", Fault.TRANSIENT),
        ("unexpected status from POST request to http://x: 429 Too Many Requests", Fault.TRANSIENT),
        ('failed to do request: Put "http://x": EOF', Fault.TRANSIENT),
        ("write tcp 1.2.3.4:5->6.7.8.9:443: write: broken pipe", Fault.TRANSIENT),
        ("read: connection reset by peer", Fault.TRANSIENT),
        ("net/http: TLS handshake timeout", Fault.TRANSIENT),
        ("unexpected status from PUT request to http://x: 400 Bad Request", Fault.REFUSED),
        ("tag invalid: The image tag 'x' already exists", Fault.REFUSED),
        ("something never seen before", Fault.REFUSED),
    ],
)
def test_what_an_error_asks_for(text: str, fault: Fault) -> None:
    assert fault_in(text) is fault


def test_an_error_in_the_stream_is_raised() -> None:
    with pytest.raises(TransferError) as caught:
        Layers(print).see({"errorDetail": {"message": "denied"}, "error": "denied"})
    assert (caught.value.fault, caught.value.text) == (Fault.DENIED, "denied")


def test_what_the_engine_calls_its_pieces_is_left_out() -> None:
    text = 'failed commit on ref "layer-sha256:ab": unexpected status from PUT request to x: 400 Bad Request'
    with pytest.raises(TransferError, match=r"^unexpected status from PUT request to x: 400 Bad Request$"):
        Layers(print).see({"error": text})


@pytest.mark.parametrize(
    "event",
    [
        {"status": "1: digest: sha256:" + "ab" * 32 + " size: 700"},
        {"progressDetail": {}, "aux": {"Tag": "1", "Digest": "sha256:" + "ab" * 32, "Size": 700}},
    ],
)
def test_both_stores_tell_the_digest_in_their_own_way(event: dict[str, object]) -> None:
    layers = Layers(print)
    layers.see(event)
    assert layers.digest == "sha256:" + "ab" * 32


def pushing(current: int) -> dict[str, object]:
    detail = {"current": current, "total": 2_000_000}
    return {"status": "Pushing", "id": "cad945fc7c57", "progressDetail": detail}


def test_a_repeated_event_is_not_progress() -> None:
    layers = Layers(lambda _: None)
    layers.see(pushing(1))
    before = layers.moved_at
    layers.see(pushing(1))
    assert layers.moved_at == before
    time.sleep(0.001)
    layers.see(pushing(2))
    assert layers.moved_at > before


def test_progress_is_one_line_a_layer() -> None:
    lines: list[str] = []
    layers = Layers(lines.append)
    layers.see({"status": "The push refers to repository [x]"})
    layers.see({"status": "Waiting", "id": "8fde3c2933a3", "progressDetail": {}})
    layers.see(pushing(1))
    layers.see(pushing(2_000_000))
    layers.see({"status": "Pushed", "id": "cad945fc7c57", "progressDetail": {}})
    layers.see({"status": "Pushed", "id": "cad945fc7c57", "progressDetail": {}})
    layers.see({"status": "Layer already exists", "id": "8fde3c2933a3", "progressDetail": {}})
    assert lines == ["layer cad945fc7c57 pushed (2.0 MB)", "layer 8fde3c2933a3 already exists"]


def test_a_long_push_says_now_and_then_how_far_it_is() -> None:
    lines: list[str] = []
    layers = Layers(lines.append, every=0)
    layers.see(pushing(500_000))
    assert lines == ["0.5 MB of 2.0 MB pushed"]


def test_no_movement_is_a_stall() -> None:
    with pytest.raises(TransferError, match=r"^no progress for 3 s$") as caught:
        StallPolicy(3, FOREVER).check(time.monotonic() - 3)
    assert caught.value.fault is Fault.STALLED
    StallPolicy(3, FOREVER).check(time.monotonic() - 1)


def test_the_end_of_the_time_counts_although_something_moves() -> None:
    with pytest.raises(TransferError, match=r"^the deadline passed$") as caught:
        StallPolicy(3, time.monotonic()).check(time.monotonic())
    assert caught.value.fault is Fault.TIMED_OUT


def test_silence_is_borne_no_longer_than_either_limit() -> None:
    assert StallPolicy(3, FOREVER).idle_timeout() == 3
    assert StallPolicy(60, time.monotonic() + 2).idle_timeout() <= 2
    assert StallPolicy(60, 0).idle_timeout() == 0.1


def event(status: str, current: int, total: int, layer: str = "cad945fc7c57") -> dict[str, object]:
    return {"status": status, "id": layer, "progressDetail": {"current": current, "total": total}}


def test_a_layer_that_was_sent_whole_is_settling_until_the_registry_has_it() -> None:
    layers = Layers(lambda _: None)
    layers.see(event("Pushing", 5, 40_000_000))
    assert layers.settling == 0
    layers.see(event("Pushing", 40_000_000, 40_000_000))
    layers.see(event("Pushing", 7, 7, "78cc9fd0a5fa"))
    assert layers.settling == 40_000_007
    layers.see({"status": "Pushed", "id": "cad945fc7c57"})
    assert layers.settling == 7


def test_a_registry_that_stores_a_big_layer_is_given_time_for_its_bytes() -> None:
    watch, long_ago = StallPolicy(stall=50), time.monotonic() - 100
    watch.check(long_ago, settling=2_000_000_000)
    with pytest.raises(TransferError, match=r"^no progress for 60 s$"):
        watch.check(long_ago, settling=200_000_000)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "unexpected status from PUT request to http://x/v2/a/blobs/uploads/1: 400 Bad Request",
            Fault.CORRUPTED,
        ),
        (
            "unexpected status from PUT request to http://x/v2/a/blobs/uploads/1: 404 Not Found",
            Fault.TRANSIENT,
        ),
        ("unexpected status from POST request to http://x/v2/a/blobs/uploads/: 404 Not Found", Fault.MISSING),
        ("unexpected status from PUT request to http://x/v2/a/manifests/b: 400 Bad Request", Fault.REFUSED),
        ("unexpected status from PUT request to http://x: 412 Precondition Failed", Fault.FULL),
        ("denied: adding 1 MiB will exceed the configured upper limit of 10 GiB", Fault.FULL),
        ("toomanyrequests: Data limit exceeded", Fault.TRANSIENT),
        ("dial tcp: lookup registry.example.com: no such host", Fault.NAME),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", Fault.TRUST),
    ],
)
def test_faults_that_other_words_hide(text: str, fault: Fault) -> None:
    assert fault_in(text) is fault
