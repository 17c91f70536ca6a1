"""The server on the wire: the real google-genai client, and raw sockets where a client would be too polite."""

import asyncio
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.genai.errors import ClientError, ServerError
from google.genai.types import HttpOptions, HttpRetryOptions

import preloaded
from adk_skills_agent.testing import GeminiServer, parse_conversation
from adk_skills_agent.testing.gemini_http import MAX_BODY_BYTES
from own_descriptors import sockets_at

MODEL = "gemini-2.5-flash"
GREETING = parse_conversation("turns: [{when: {user_contains: hello}, text: 'Good day to you, Zoë.'}]", name="greeting")
TOOL = {"function_declarations": [{"name": "find", "parameters_json_schema": {"type": "object"}}]}
FINDING = parse_conversation(
    """
turns:
  - call: [{name: find, args: {key: a}}, {name: find, args: {key: "b\\u2028c"}}]
    finish_reason: STOP
"""
)


def post(server, path, body=b"{}", headers=None):
    connection = http.client.HTTPConnection(*server.base_url.removeprefix("http://").rsplit(":", 1), timeout=20)
    try:
        connection.request("POST", path, body, {"x-goog-api-key": "k"} if headers is None else headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_client_gets_text_usage_and_finish_reason():
    with GeminiServer(GREETING) as server, server.client() as client:
        answer = client.models.generate_content(model=MODEL, contents="hello")
        assert answer.text == "Good day to you, Zoë."
        assert answer.candidates[0].finish_reason == "STOP"
        assert answer.model_version == MODEL
        assert answer.response_id
        assert (answer.usage_metadata.prompt_token_count, answer.usage_metadata.total_token_count) == (2, 8)
        server.assert_finished()


def test_the_client_streams_text_in_pieces():
    with GeminiServer(GREETING) as server, server.client() as client:
        chunks = list(client.models.generate_content_stream(model=MODEL, contents="hello"))
        assert [c.text for c in chunks] == ["Good da", "y to yo", "u, Zoë."]
        assert [c.candidates[0].finish_reason for c in chunks] == [None, None, "STOP"]
        assert server.requests[0].method == "streamGenerateContent"


@pytest.mark.parametrize("stream", [False, True])
def test_the_client_gets_several_calls_with_ids_of_their_own(stream):
    config = {"tools": [TOOL], "automatic_function_calling": {"disable": True}}
    with GeminiServer(FINDING) as server, server.client() as client:
        if stream:
            calls = [
                call
                for chunk in client.models.generate_content_stream(model=MODEL, contents="go", config=config)
                for call in chunk.function_calls or ()
            ]
        else:
            calls = client.models.generate_content(model=MODEL, contents="go", config=config).function_calls
        assert [(c.name, c.args) for c in calls] == [("find", {"key": "a"}), ("find", {"key": "b\u2028c"})]
        assert len({c.id for c in calls}) == 2


async def test_the_asynchronous_client_works_streamed_and_not():
    async with GeminiServer(GREETING) as server:
        client = server.client()
        answer = await client.aio.models.generate_content(model=MODEL, contents="hello")
        assert answer.text == "Good day to you, Zoë."
        stream = await client.aio.models.generate_content_stream(model=MODEL, contents="hello")
        assert "".join([c.text async for c in stream]) == "Good day to you, Zoë."
        await client.aio.aclose()
        client.close()


def test_tokens_are_counted_and_that_is_no_turn_of_the_conversation():
    with GeminiServer(GREETING) as server, server.client() as client:
        assert client.models.count_tokens(model=MODEL, contents="12345678").total_tokens == 2
        assert [r.method for r in server.requests] == ["countTokens"]
        assert server.mismatches == []


def test_a_model_can_be_asked_for():
    with GeminiServer(GREETING) as server, server.client() as client:
        model = client.models.get(model=MODEL)
        assert (model.name, model.input_token_limit) == (f"models/{MODEL}", 1_048_576)


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        (400, ClientError, "INVALID_ARGUMENT"),
        (404, ClientError, "NOT_FOUND"),
        (429, ClientError, "RESOURCE_EXHAUSTED"),
        (500, ServerError, "INTERNAL"),
        (503, ServerError, "UNAVAILABLE"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_rehearsed_error_is_the_clients_own_error(code, kind, status, stream):
    conversation = parse_conversation(f"turns: [{{error: {{code: {code}, message: Not now.}}}}]")
    with GeminiServer(conversation) as server, server.client() as client:
        method = client.models.generate_content_stream if stream else client.models.generate_content
        with pytest.raises(kind) as caught:
            list(method(model=MODEL, contents="x"))
        assert (caught.value.code, caught.value.status, caught.value.message) == (code, status, "Not now.")
        server.assert_finished()


def test_an_error_that_comes_twice_is_overcome_by_the_clients_retries():
    conversation = parse_conversation("turns: [{error: {code: 503, times: 2}, text: At last.}]")
    retries = HttpRetryOptions(attempts=3, initial_delay=0.01, max_delay=0.01, jitter=0)
    with GeminiServer(conversation) as server, server.client() as client:
        answer = client.models.generate_content(
            model=MODEL, contents="x", config={"http_options": HttpOptions(retry_options=retries)}
        )
        assert answer.text == "At last."
        assert len(server.requests) == 3
        server.assert_finished()


def test_an_unexpected_request_is_a_400_that_says_what_was_expected_and_is_kept():
    with GeminiServer(GREETING) as server, server.client() as client:
        with pytest.raises(ClientError) as caught:
            client.models.generate_content(model=MODEL, contents="good bye")
        sentence = "Turn 1 of conversation 'greeting' (<text>:1) expected the user's text to contain 'hello'"
        assert caught.value.code == 400
        assert caught.value.message.startswith(sentence)
        assert [str(m) for m in server.mismatches] == [caught.value.message]
        assert server.mismatches[0].request is server.requests[0]
        with pytest.raises(AssertionError) as unfinished:
            server.assert_finished()
        assert sentence in str(unfinished.value)
        assert "Turn 1 of conversation 'greeting' (<text>:1) was never asked for." in str(unfinished.value)


def test_an_invalid_request_is_refused_as_gemini_does_and_kept():
    with GeminiServer(GREETING) as server, server.client() as client:
        config = {"tools": [{"function_declarations": [{"name": "two words"}]}]}
        with pytest.raises(ClientError, match=r"Invalid function name 'two words'"):
            client.models.generate_content(model=MODEL, contents="hello", config=config)
        assert server.requests == []
        assert server.mismatches[0].request is None


def test_of_several_conversations_each_request_gets_its_own():
    buyer, seller = (
        parse_conversation(f"when: {{system_contains: {n}}}\nturns: [{{text: I am {n}.}}]", name=n) for n in ("A", "B")
    )
    with GeminiServer([buyer, seller]) as server, server.client() as client:
        answer = client.models.generate_content(model=MODEL, contents="x", config={"system_instruction": "B"})
        assert answer.text == "I am B."
        with pytest.raises(ClientError, match=r"No conversation is for this request: 'A' expected .*; 'B' expected"):
            client.models.generate_content(model=MODEL, contents="x", config={"system_instruction": "C"})
        with pytest.raises(AssertionError, match="Turn 1 of conversation 'A'"):
            server.assert_finished()


def test_concurrent_sessions_each_get_the_turn_they_are_at():
    conversation = parse_conversation("turns: [{text: one}, {text: two}, {text: three}]")

    def session(client):
        chat = client.chats.create(model=MODEL)
        return [chat.send_message(text).text for text in "abc"]

    with GeminiServer(conversation) as server, server.client() as client, ThreadPoolExecutor(16) as pool:
        assert list(pool.map(session, [client] * 16)) == [["one", "two", "three"]] * 16
        assert len(server.requests) == 48
        server.assert_finished()


def test_the_client_ignores_vertex_settings_and_proxies_of_the_environment(monkeypatch):
    monkeypatch.setenv("GOOGLE_GENAI_USE_ENTERPRISE", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_API_KEY", "real")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9/elsewhere")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with GeminiServer(GREETING) as server, server.client() as client:
        assert client.models.generate_content(model=MODEL, contents="hello").text == "Good day to you, Zoë."


def test_the_environment_points_another_process_at_the_server():
    program = (
        "from google.genai import Client\n"
        "client = Client()\n"
        "print(ascii(client.models.generate_content(model='gemini-2.5-flash', contents='hello').text))"
    )
    environment = os.environ | {"HTTP_PROXY": "http://127.0.0.1:9", "GOOGLE_GENAI_USE_VERTEXAI": "true"}
    with GeminiServer(GREETING) as server:
        done = subprocess.run(
            [preloaded.program("python"), "-c", program],
            env=environment | server.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.stdout, done.returncode) == ("'Good day to you, Zo\\xeb.'\n", 0), done.stderr
        server.assert_finished()


def test_no_thread_and_no_socket_remains():
    threads, ports = serving_threads(), []
    for _ in range(3):
        with GeminiServer(GREETING) as server, server.client() as client:
            ports.append(int(server.base_url.rpartition(":")[2]))
            client.models.generate_content(model=MODEL, contents="hello")
            list(client.models.generate_content_stream(model=MODEL, contents="hello"))
    deadline = time.monotonic() + 30
    while (serving_threads() - threads or sockets_at(*ports)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert serving_threads() - threads == set()
    assert sockets_at(*ports) == []


def serving_threads() -> set[threading.Thread]:
    """Of servers: those of sandboxes of tests before come and go."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("adk-skills-")}


def test_a_connection_that_says_nothing_does_not_keep_the_server_from_closing():
    with GeminiServer(GREETING) as server:
        host, port = server.base_url.removeprefix("http://").rsplit(":", 1)
        silent = socket.create_connection((host, int(port)))
        half = socket.create_connection((host, int(port)))
        half.sendall(
            b"POST /v1beta/models/m:generateContent HTTP/1.1\r\nx-goog-api-key: k\r\nContent-Length: 99\r\n\r\n{"
        )
        assert post(server, "/v1beta/models/m:generateContent")[0] == 400
    with silent, half:
        assert silent.recv(10) == b""
        half.settimeout(20)
        assert half.recv(10) == b""
    assert [m.message for m in server.mismatches] == [
        "Gemini refuses this request: * GenerateContentRequest.contents: contents is not specified"
    ]


@pytest.mark.parametrize(
    ("path", "body", "headers", "code", "status"),
    [
        ("/v1beta/models/m:embedContent", b"{}", None, 404, "NOT_FOUND"),
        ("/v1beta/tunedModels/m:generateContent", b"{}", None, 404, "NOT_FOUND"),
        ("/", b"{}", None, 404, "NOT_FOUND"),
        ("/v1beta/models/m:generateContent", b"{}", {}, 403, "PERMISSION_DENIED"),
        ("/v1beta/models/m:generateContent", b"{}", {"x-goog-api-key": ""}, 403, "PERMISSION_DENIED"),
        ("/v1beta/models/m:generateContent?key=k", b"{}", {}, 400, "INVALID_ARGUMENT"),
        ("/v1/models/m:generateContent", b"no json", None, 400, "INVALID_ARGUMENT"),
        ("/v1/models/m:countTokens", b'{"contents": [{"parts": [{"text": "a"}]}], "tools": 5}', None, 400, None),
        ("/v1/models/m:generateContent", b" " * (MAX_BODY_BYTES + 1), None, 400, "INVALID_ARGUMENT"),
    ],
)
def test_raw_requests_get_errors_in_geminis_form(path, body, headers, code, status):
    with GeminiServer(GREETING) as server:
        got, text = post(server, path, body, headers)
        error = json.loads(text)["error"]
        assert (got, error["code"]) == (code, code)
        assert status in {error["status"], None}
        assert len(server.mismatches) == 1


def test_a_body_in_chunks_is_read():
    parts = [b'{"contents": [{"parts"', b': [{"text": "hello"}]}]}']
    with GeminiServer(GREETING) as server:
        assert post(server, "/v1/models/m:generateContent", iter(parts))[0] == 200
        server.assert_finished()


@pytest.mark.parametrize(
    ("rest", "code"),
    [(b"\r\n", 411), (b"Content-Length: -1\r\n\r\n", 411), (b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400)],
)
def test_a_body_of_unknown_length_is_refused(rest, code):
    with GeminiServer(GREETING) as server:
        host, port = server.base_url.removeprefix("http://").rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(b"POST /v1/models/m:generateContent HTTP/1.1\r\nx-goog-api-key: k\r\n" + rest)
            assert client.recv(100).startswith(b"HTTP/1.1 %d " % code)


def test_without_alt_sse_a_stream_is_a_json_list():
    body = json.dumps({"contents": [{"parts": [{"text": "hello"}]}]})
    with GeminiServer(GREETING) as server:
        code, text = post(server, "/v1beta/models/m:streamGenerateContent", body)
        assert code == 200
        assert len(json.loads(text)) == 3


def test_lone_surrogates_survive():
    conversation = parse_conversation('turns: [{text: "a\\ud800b"}]')
    body = json.dumps({"contents": [{"parts": [{"text": "\ud800"}]}]})
    with GeminiServer(conversation) as server:
        _, text = post(server, "/v1/models/m:generateContent", body)
        assert json.loads(text)["candidates"][0]["content"]["parts"][0]["text"] == "a\ud800b"


def test_a_server_that_does_not_run_says_so_and_one_that_runs_cannot_start_again():
    server = GeminiServer(GREETING)
    with pytest.raises(RuntimeError, match=r"is not running. Use it in a `with` block"):
        _ = server.base_url
    with server, pytest.raises(RuntimeError, match=r"already runs at http://127.0.0.1:"):
        server.start()
    server.close()
    with pytest.raises(ValueError, match="at least one conversation"):
        GeminiServer([])


def test_it_listens_on_ipv6_where_there_is_one():
    try:
        server = GeminiServer(GREETING, host="::1").start()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with server.client() as client:
        assert server.base_url.startswith("http://[::1]:")
        assert client.models.generate_content(model=MODEL, contents="hello").text.startswith("Good day")
    server.close()


async def test_many_parallel_requests_are_answered():
    async with GeminiServer(GREETING) as server:
        client = server.client()
        answers = await asyncio.gather(
            *(client.aio.models.generate_content(model=MODEL, contents=f"hello {n}") for n in range(100))
        )
        await client.aio.aclose()
        client.close()
        assert len(answers) == 100
        assert len(server.requests) == 100
