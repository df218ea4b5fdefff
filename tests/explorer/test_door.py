"""The page's door: no uploads, no long requests, no queue without end, no other checkpoints for strangers."""

import json
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from served import CAPS_NMT, MARIAN, needs_gradio, served

from hf_capsule_mt.cli import demo
from hf_capsule_mt.explorer import door
from hf_capsule_mt.explorer.door import JOBS_OF_A_CLIENT, LONGEST_REQUEST, MOST_WAITING, is_loopback

pytestmark = needs_gradio


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("[::1]", True), ("127.3.2.1", True)]
    + [("0.0.0.0", False), ("::", False), ("192.168.0.5", False), ("example.org", False), ("", False)],
)
def test_loopback(host, expected):
    assert is_loopback(host) == expected


@pytest.mark.parametrize("variable", [False, True], ids=["option", "environment"])
def test_strangers_choose_from_the_list_alone(variable, monkeypatch, capsys):
    built = []
    options = ["--models", MARIAN] + ([] if variable else ["--host", "0.0.0.0"])
    if variable:
        monkeypatch.setenv("GRADIO_SERVER_NAME", "0.0.0.0")
    monkeypatch.setattr(demo, "build_demo", lambda models, **options: built.append(options))
    monkeypatch.setattr("hf_capsule_mt.explorer.page.launch_page", lambda *arguments: None)
    demo.main(options)
    demo.main(["--models", MARIAN, "--host", "127.0.0.1"])
    assert [options["fixed_models"] for options in built] == [True, False]
    with pytest.raises(SystemExit):
        demo.main(["--host", "0.0.0.0"])
    assert "others can open a page at 0.0.0.0" in capsys.readouterr().err


def test_a_variable_without_a_value_opens_nothing(monkeypatch):
    hosts = []
    monkeypatch.setenv("GRADIO_SERVER_NAME", "")
    monkeypatch.setattr(demo, "build_demo", lambda models, **options: None)
    monkeypatch.setattr("hf_capsule_mt.explorer.page.launch_page", lambda page, host, port: hosts.append(host))
    demo.main([])
    assert hosts == ["127.0.0.1"]


def post(url, data, headers):
    request = urllib.request.Request(url, data, headers, method="POST")
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (ConnectionError, urllib.error.URLError):
        # The server answers a request that it does not read, and hangs up while it is being sent.
        return None, "hung up"


def ask(url, number, visitor, name=MARIAN, sentence="a b c d", route="queue/join"):
    """Join the queue as a page does, unless by another route."""
    return post(f"{url}gradio_api/{route}", *request_of(number, visitor, name, sentence))


def request_of(number, visitor, name=MARIAN, sentence="a b c d"):
    """What a page sends, and its headers."""
    body = {"data": [name, sentence, True, None], "fn_index": 0, "session_hash": f"{visitor}{number}"}
    return json.dumps(body).encode(), {"content-type": "application/json", "x-forwarded-for": visitor}


@pytest.mark.slow
def test_what_the_page_does_not_take():
    with served(MARIAN, CAPS_NMT) as url:
        form = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\nabc\r\n--x--\r\n'
        headers = {"content-type": "multipart/form-data; boundary=x"}
        assert post(f"{url}gradio_api/upload", form, headers) == (403, '{"detail": "this page takes no files"}')
        assert post(f"{url}gradio_api/upload", b"x" * 20_000_000, headers)[0] in (403, None)
        assert post(f"{url}gradio_api/queue/join", b"x" * (LONGEST_REQUEST + 1), {})[0] in (413, None)
        # Sent in pieces, it does not say how long it is.
        body, headers = request_of(0, "10.0.0.9")
        body += b" " * LONGEST_REQUEST
        pieces = (body[start : start + 10_000] for start in range(0, len(body), 10_000))
        assert post(f"{url}gradio_api/queue/join", pieces, headers)[0] != 200
        body, headers = request_of(0, "10.0.0.9")
        assert post(f"{url}gradio_api/queue/join", iter([body]), headers)[0] == 200


@pytest.mark.slow
def test_a_visitor_does_not_fill_the_queue(monkeypatch):
    """With the model at work on the first sentence, so that the others wait."""
    import threading

    from hf_capsule_mt.explorer import page

    go_on, original = threading.Event(), page.answer
    monkeypatch.setattr(page, "answer", lambda *arguments: (go_on.wait(300), original(*arguments))[1])
    with served(MARIAN, CAPS_NMT) as url:
        try:
            answers = [ask(url, number, "10.0.0.1") for number in range(JOBS_OF_A_CLIENT + 3)]
            assert [status for status, _ in answers] == [200] * JOBS_OF_A_CLIENT + [503] * 3
            assert "still being translated" in answers[-1][1]
            assert ask(url, 0, "10.0.0.2")[0] == 200, "the next visitor is let in"
            crowd = [ask(url, 0, f"10.0.1.{number}") for number in range(MOST_WAITING + 5)]
            assert crowd[-1][0] == 503
            assert "Queue is full" in crowd[-1][1]
        finally:
            go_on.set()


@pytest.mark.slow
def test_nobody_goes_past_the_queue(monkeypatch):
    monkeypatch.delenv("SPACE_ID", raising=False)
    with served(MARIAN, CAPS_NMT) as url:
        answers = [ask(url, 0, "10.0.0.1", route=route) for route in ("run/predict", "api/predict")]
    assert [status for status, _ in answers] == [404, 404]


@pytest.mark.parametrize(
    ("host", "header", "space", "expected"),
    [
        ("203.0.113.7", "10.0.0.1", False, "203.0.113.7"),
        ("203.0.113.7", None, False, "203.0.113.7"),
        ("127.0.0.1", "1.1.1.1, 10.0.0.1", False, "10.0.0.1"),
        ("127.0.0.1", None, False, "127.0.0.1"),
        ("10.9.9.9", "1.1.1.1, 10.0.0.1", True, "10.0.0.1"),
    ],
)
def test_whom_a_request_comes_from(host, header, space, expected, monkeypatch):
    """Nobody can be many by what they write in a header, unless a proxy lets them."""
    monkeypatch.delenv("SPACE_ID", raising=False)
    if space:
        monkeypatch.setenv("SPACE_ID", "user/name")
    headers = {} if header is None else {"x-forwarded-for": header}
    assert door._client(SimpleNamespace(headers=headers, client=SimpleNamespace(host=host))) == expected
