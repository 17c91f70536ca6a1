"""Secrets: what shows them, in which forms and pieces they are recognised, and what a run lets out."""

from __future__ import annotations

import base64
import copy
import json
import logging
import pickle
import threading
import traceback
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError, InvalidArguments, SandboxError
from adk_skills_agent.sandbox import secrets as secrets_module
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    NetworkDecision,
    OutputFile,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.policy import check_env_name, check_policy, check_search_path, resolve_policy
from adk_skills_agent.sandbox.process.command import build_environment, secrets_in
from adk_skills_agent.sandbox.secrets import (
    FileSearch,
    Redactor,
    Secret,
    SecretForms,
    redact_error,
    redacted,
    redacted_aside,
    secrets_of,
)

VALUE = "sk-live/4f+9aZ=hunter2_Q"
SECRET = Secret(VALUE)
FORMS = SecretForms([("KEY", SECRET)])
PROCESS = SandboxPolicy(min_isolation="process", wall_seconds=20.0)


# The value itself


def test_no_way_to_print_copy_or_pickle_a_secret_shows_it() -> None:
    shown = [repr(SECRET), str(SECRET), f"{SECRET}", f"{SECRET!r}", f"{SECRET:>30}", "%s %r" % (SECRET, SECRET)]  # noqa: UP031
    shown += [
        repr({"a": SECRET}),
        repr(SandboxPolicy(env={"A": SECRET})),
        repr(ExecutionRequest(("x",), env={"A": SECRET})),
    ]
    shown += [str(asdict(SandboxPolicy(env={"A": SECRET}))), repr(copy.deepcopy([SECRET])), repr(copy.copy(SECRET))]
    assert not [text for text in shown if "hunter2" in text]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(SECRET, protocol)
    with pytest.raises(TypeError):
        json.dumps(SECRET)
    with pytest.raises(AttributeError):
        vars(SECRET) if hasattr(SECRET, "__dict__") else SECRET.__dict__
    assert SECRET.reveal() == VALUE


def test_a_secret_in_a_log_record_or_a_traceback_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").info("granted %s and %r", SECRET, {"k": SECRET})
    assert "hunter2" not in caplog.text
    try:
        raise ValueError(SECRET)
    except ValueError:
        assert "hunter2" not in traceback.format_exc()


def test_equal_values_are_equal_secrets() -> None:
    assert Secret(VALUE) == SECRET
    assert hash(Secret(VALUE)) == hash(SECRET)
    assert Secret("another one") != SECRET
    assert SECRET != VALUE


@pytest.mark.parametrize(
    "value", ["", "abcde", "     a     ", "a\nb\nc\nd", "a\0bcdefgh", "x" * 40_000, 7, None, b"bytes!"]
)
def test_a_value_that_cannot_be_kept_out_of_output_is_refused_without_showing_it(value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        Secret(value)  # type: ignore[arg-type]
    if isinstance(value, str) and value:
        assert value not in refused.value.message
    assert refused.value.message.endswith(".")


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ConfigError, match="surrogate"):
        Secret("abcdefgh\ud800")


def test_a_secret_of_the_agents_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", VALUE)
    assert Secret.from_env("A_KEY") == SECRET
    with pytest.raises(ConfigError, match="'NO_KEY' is not set"):
        Secret.from_env("NO_KEY")
    monkeypatch.setenv("A_KEY", "abc")
    with pytest.raises(ConfigError, match="'A_KEY' cannot be a secret"):
        Secret.from_env("A_KEY")


# Names


@pytest.mark.parametrize(
    "name",
    [
        *(
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "LD_AUDIT",
            "DYLD_INSERT_LIBRARIES",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PYTHONHOME",
        ),
        *(
            "PYTHONWARNINGS",
            "PYTHONBREAKPOINT",
            "BASH_ENV",
            "ENV",
            "IFS",
            "SHELLOPTS",
            "PS4",
            "BASH_FUNC_ls",
            "NODE_OPTIONS",
        ),
        *("PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GCONV_PATH", "GLIBC_TUNABLES", "GIT_SSH_COMMAND", "ld_preload"),
    ],
)
def test_a_name_that_changes_how_a_process_starts_is_refused_everywhere(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        check_env_name(name)
    for value in ("x", SECRET):
        with pytest.raises(ConfigError, match=name):
            check_policy(SandboxPolicy(env={name: value}))
        with pytest.raises(ConfigError, match=name):
            resolve_policy({"env": {name: value}})
    with pytest.raises(ConfigError, match=name):
        check_policy(SandboxPolicy(inherit_env=(name,), allow_secrets=True))
    with pytest.raises(ValueError, match=name):
        build_environment(SandboxPolicy(), {name: "x"}, home="/w", tmp="/t", run_id="1", host={})


@pytest.mark.parametrize(
    "name", ["OPENWEATHER_KEY", "TZ", "HTTP_PROXY", "PYTHONHASHSEED", "PYTHONUTF8", "LANG", "ENVIRONMENT"]
)
def test_ordinary_names_are_granted(name: str) -> None:
    check_env_name(name)


@pytest.mark.parametrize("path", ["", ".", "bin", "/usr/bin:", ":/usr/bin", "/usr/bin::/bin", "/usr/bin:x"])
def test_a_path_with_a_relative_entry_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="absolute"):
        check_search_path(path)
    with pytest.raises(ConfigError, match="absolute"):
        check_policy(SandboxPolicy(env={"PATH": path}))
    check_policy(SandboxPolicy(env={"PATH": "/opt/tool/bin:/usr/bin"}))


def test_a_malformed_grant_is_refused_without_its_value() -> None:
    for env in ([("KEY", VALUE)], {"KEY": VALUE.encode()}, {"KEY": [VALUE]}, {"KEY": VALUE + "\0"}):
        with pytest.raises(ConfigError) as refused:
            resolve_policy({"env": env})
        assert "hunter2" not in refused.value.message


def test_secrets_of_a_run_are_what_is_granted_and_what_is_inherited_under_a_secret_name() -> None:
    policy = SandboxPolicy(
        env={"A": SECRET, "B": "plain text"}, inherit_env=("X_TOKEN", "TZ", "Y_KEY"), allow_secrets=True
    )
    host = {"X_TOKEN": "inherited-token", "TZ": "Europe/Oslo", "Y_KEY": "abc"}
    found = secrets_in(policy, {"C": Secret("called with this")}, host)
    assert [name for name, _ in found] == ["C", "A", "X_TOKEN"]
    assert secrets_of({"A": SECRET}, {"B": Secret(VALUE)}) == (("A", SECRET),)


# Results and errors

RESULT = ExecutionResult(Status.OK, 0, IsolationReport(IsolationLevel.PROCESS, {}))


def test_a_finished_result_is_cleaned_in_every_field() -> None:
    dirty = replace(
        RESULT,
        stdout=b"head " + VALUE.encode() + b"tail",
        stdout_cut_at=5 + len(VALUE),
        stderr=VALUE.encode(),
        files=(
            OutputFile("ok.txt", b"fine", "text/plain"),
            OutputFile("key.bin", b"\0" + VALUE.encode(), "application/octet-stream"),
            OutputFile(f"{VALUE.replace('/', '_')}.txt", b"fine", "text/plain"),
            OutputFile("hunter2", base64.b64encode(b"x" + VALUE.encode()), "text/plain"),
        ),
        skipped_files=((VALUE, "a link"),),
        notes=(f"a note about {VALUE}",),
        network=(NetworkDecision(f"{VALUE.encode().hex()}.evil.example", 443, False, "no"),),
    )
    forms = SecretForms([("KEY", SECRET), ("NAME", Secret(VALUE.replace("/", "_")))])
    clean = redacted(dirty, forms)
    assert VALUE not in repr(clean)
    assert VALUE.encode().hex() not in repr(clean)
    assert clean.stdout == b"head [secret KEY]tail"
    assert clean.stdout[clean.stdout_cut_at :] == b"tail"
    assert [file.path for file in clean.files] == ["ok.txt"]
    reasons = dict(clean.skipped_files)
    assert "the secret 'KEY'" in reasons["key.bin"]
    assert "the secret 'KEY'" in reasons["hunter2"]
    assert redacted(dirty, None) is dirty


def test_an_error_is_cleaned_in_place() -> None:
    error = SandboxError(f"it said {VALUE}")
    error.add_note(f"on the host: {VALUE}")
    redact_error(error, FORMS)
    assert VALUE not in "".join(traceback.format_exception(error))
    assert error.message == str(error) == "it said [secret KEY]"
    redact_error(error, None)


# Through a real run, at the weakest level and at the strongest one that works here


@pytest.fixture(params=["process", "landlock", "auto"])
def limits(request: pytest.FixtureRequest) -> SandboxPolicy:
    return replace(PROCESS, isolation=request.param)


async def run(code: str, limits: SandboxPolicy, **more: object) -> ExecutionResult:
    request = ExecutionRequest(("python3", "-c", code), limits, env={"KEY": SECRET}, **more)  # type: ignore[arg-type]
    return await local_sandbox().run(request)


HTML_REFERENCES = """
import os, sys, time
value = os.environ["KEY"]
def each(form):
    return "".join(form.format(ord(character)) for character in value)
mixed = "".join(c if n % 2 else f"&#x{ord(c):04X};" for n, c in enumerate(value))
for text in (each("&#{};"), each("&#x{:x};"), each("&#X{:06X};"), each("&#{:07d};"), each("&#{}"), mixed):
    for part in ("<p>", text[:13], text[13:40], text[40:], "</p>\\n"):
        os.write(1, part.encode())
        time.sleep(0.005)
print(each("&#x{:02x};"), file=sys.stderr)
with open("page.html", "w") as page:
    page.write(each("&#{};"))
"""


async def test_the_script_has_the_value_and_nobody_else_sees_it(
    limits: SandboxPolicy, nothing_left: None, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes] = []
    code = f"""
import os, sys, base64, time
key = os.environ["KEY"]
print(len(key), key == {VALUE[:12]!r} + {VALUE[12:]!r})
print(key); print(base64.b64encode(b"u:" + key.encode()).decode())
for c in key:
    sys.stdout.write(c); sys.stdout.flush(); time.sleep(0.002)
sys.stderr.write(key[::-1])
print("x" * 20)
"""
    with caplog.at_level(logging.DEBUG):
        result = await run(code, limits, on_output=lambda _, data: seen.append(data))
    assert result.status is Status.OK
    assert result.stdout.startswith(f"{len(VALUE)} True\n".encode())
    assert result.stdout.count(b"[secret KEY]") == 3
    assert result.stderr == b"[secret KEY]"
    for text in (repr(result), b"".join(seen).decode(), caplog.text):
        assert VALUE not in text
        assert VALUE[::-1] not in text
        assert base64.b64encode(b"xx" + VALUE.encode()).decode()[4:-4] not in text


async def test_row_86_html_references_to_the_value_are_blotted_out_of_a_script(
    limits: SandboxPolicy, nothing_left: None
) -> None:
    result = await run(HTML_REFERENCES, limits)
    assert result.stdout == b"<p>[secret KEY]</p>\n" * 6, result.stdout
    assert result.stderr == b"[secret KEY]\n"
    assert [name for name, _ in result.skipped_files] == ["page.html"]
    assert not result.files


async def test_a_spill_file_and_the_cut_between_head_and_tail_are_clean(
    limits: SandboxPolicy, tmp_path: Path, nothing_left: None
) -> None:
    policy = replace(limits, output_bytes=1000)
    code = "import os\nfor i in range(400): print(i, os.environ['KEY'])"
    request = ExecutionRequest(("python3", "-c", code), policy, env={"KEY": SECRET}, spill_dir=tmp_path / "spill")
    result = await local_sandbox().run(request)
    assert result.stdout_truncated
    assert result.stdout_spill is not None
    spilled = result.stdout_spill.read_bytes()
    assert spilled.count(b"[secret KEY]") == 400
    for data in (spilled, result.stdout):
        for start in range(len(VALUE) - 8):
            assert VALUE[start : start + 8].encode() not in data


async def test_files_with_a_secret_are_withheld_and_do_not_stay_in_the_sessions_workspace(
    limits: SandboxPolicy, tmp_path: Path, nothing_left: None
) -> None:
    code = """
import os, base64, pathlib
key = os.environ["KEY"]
pathlib.Path("fine.txt").write_text("fine")
pathlib.Path("config.ini").write_text("[a]\\nkey = " + key)
pathlib.Path("deep").mkdir()
pathlib.Path("deep/token.b64").write_bytes(base64.b64encode(b"ab" + key.encode()))
pathlib.Path("big.bin").write_bytes(b"\\0" * 6_000_000 + key.encode() + b"\\0" * 1000)
pathlib.Path("hidden.txt").write_text(key); os.chmod("hidden.txt", 0)
pathlib.Path(key.replace("/", "%2F")).write_text("named after it")
"""
    workspace = tmp_path / "session"
    workspace.mkdir()
    (workspace / "config.ini").write_text("older")
    result = await run(code, limits, workspace=workspace)
    assert result.status is Status.OK, result.stderr
    assert [file.path for file in result.files] == ["fine.txt"]
    reasons = dict(result.skipped_files)
    for name in ("config.ini", "deep/token.b64", "big.bin", "hidden.txt"):
        assert "the secret 'KEY'" in reasons[name]
    assert not [name for name in reasons if "hunter2" in name]
    kept = {str(path.relative_to(workspace)): path.read_bytes() for path in workspace.rglob("*") if path.is_file()}
    assert set(kept) == {"fine.txt", "config.ini"}
    assert kept["config.ini"] == b"older"


async def test_row_127_a_host_path_inside_a_secret_does_not_put_it_together(
    limits: SandboxPolicy, nothing_left: None
) -> None:
    """Where /work is a folder of the host, its path is put right in the output: to a slash, or to nothing but one."""
    code = """
import os
key, root = os.environ["KEY"], os.path.dirname(os.path.realpath("."))
for inside in (root, root + "/", root + "//"):
    print(key.replace("/", inside), flush=True)
    for part in key.partition("/"):
        os.write(1, part.replace("/", inside).encode())
    print()
"""
    result = await run(code, limits)
    assert result.status is Status.OK
    assert VALUE.encode() not in result.stdout


async def test_row_128_a_name_that_becomes_a_secret_outside_is_withheld(
    limits: SandboxPolicy, tmp_path: Path, nothing_left: None
) -> None:
    value = "sk_live_K9hunter2"
    code = """
import os
value = os.environ["KEY"]
for name in (value.replace("_", ":"), value.replace("K", "\u212a"), value.replace("_", "\x01")):
    open(name, "w").write("x")
"""
    workspace = tmp_path / "session"
    workspace.mkdir()
    request = ExecutionRequest(("python3", "-c", code), limits, env={"KEY": Secret(value)}, workspace=workspace)
    result = await local_sandbox().run(request)
    assert result.status is Status.OK, result.stderr
    assert result.files == ()
    assert len(result.skipped_files) == 3
    assert value not in repr(result)
    assert list(workspace.iterdir()) == []


async def test_row_163_a_long_name_is_not_cut_before_secrets_in_it_are_redacted(limits: SandboxPolicy) -> None:
    """Seen: the name of a link ended with 30 of the 31 characters of the secret, at character 512."""
    value = "sk_live_K9hunter2-abcdefghijklm"
    code = """
import os
for start in (470, 485, 500):
    path = "/".join(["d" * 100] * 4) + "/" + "e" * (start - 404) + os.environ["KEY"]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink("/x", path)
"""
    result = await local_sandbox().run(ExecutionRequest(("python3", "-c", code), limits, env={"KEY": Secret(value)}))
    names = [name for name, _ in result.skipped_files]
    assert [name[-12:] for name in names] == ["[secret KEY]"] * 3
    assert value[:6] not in repr(result)


@pytest.mark.slow
def test_row_336_character_references_without_end_are_no_work_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: a file of 60 MiB of ``&lt`` took one of four threads, and Python's lock, for 20 to 45 s."""
    forms = SecretForms([("KEY", Secret("hunter2-correct-horse"))])
    read: list[int] = []
    split = secrets_module._dereferenced
    monkeypatch.setattr(secrets_module, "_dereferenced", lambda data: read.append(data.count(b"&")) or split(data))
    search = FileSearch(forms)
    piece = b"&lt" * (1 << 18)
    answers = [search.withheld(b"data.html", piece) for _ in range(20)]
    assert answers[0] is None
    assert "HTML character references" in str(answers[-1])
    assert sum(read) < 3 << 20
    assert "HTML character" in str(search.withheld(b"small", b"&#97;"))
    assert search.withheld(b"small", b"a && b") is None
    read.clear()
    redactor = Redactor(forms)
    out = b"".join(
        [redactor.feed(piece[:65536]) for _ in range(40)]
        + [redactor.feed(b"x&y hunter2-correct-horse"), redactor.close()]
    )
    assert out.count(b"HTML character references") == 1
    assert out.endswith(b"x?y [secret KEY]")
    assert sum(read) < 1 << 20


@pytest.mark.slow
def test_row_354_what_is_held_back_is_not_looked_at_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: 9 KB, a byte at a time behind what may begin a secret, kept the event loop busy for as long as the run."""
    read: list[int] = []
    split = secrets_module._dereferenced
    monkeypatch.setattr(secrets_module, "_dereferenced", lambda data: read.append(data.count(b"&")) or split(data))
    redactor = Redactor(SecretForms([("KEY", Secret("hunter2%correct-horse-battery-staple"))]))
    out = redactor.feed(b"%" + b"&#13;" * 1000)
    out += b"".join([*(redactor.feed(bytes([13])) for _ in range(2000)), redactor.close()])
    assert out.count(b"HTML character references") == 1
    assert sum(read) < 1 << 20
    read.clear()
    search = FileSearch(SecretForms([("KEY", Secret("hunter2-correct-horse"))]))
    answers = [search.withheld(b"data.html", b"&" * (1 << 20)) for _ in range(20)]
    assert answers[0] is None
    assert "HTML character references" in str(answers[-1])
    assert sum(read) < 16 << 20


def test_row_359_of_an_error_that_quotes_megabytes_the_beginning_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: a skill's name of 2 MB of ``&lt``, as a model may write it, stopped the event loop for 6 s."""
    read: list[int] = []
    split = secrets_module._dereferenced
    monkeypatch.setattr(secrets_module, "_dereferenced", lambda data: read.append(data.count(b"&")) or split(data))
    error = InvalidArguments("There is no 'hunter2-correct-horse', " + "&lt" * (1 << 20))
    redact_error(error, SecretForms([("KEY", Secret("hunter2-correct-horse"))]))
    assert error.message.startswith("There is no '[secret KEY]', &lt&lt")
    assert error.message.endswith("...")
    assert len(error.message) < 1 << 17
    assert sum(read) < 1 << 18


def test_row_336_a_secret_with_an_ampersand_is_known_behind_too_many_references() -> None:
    redactor = Redactor(SecretForms([("KEY", Secret("hunter2&correct"))]))
    out = redactor.feed(b"&lt" * (1 << 18)) + redactor.feed(b"hunter2&cor") + redactor.feed(b"rect&") + redactor.close()
    assert out.endswith(b"?lt[secret KEY]?")


def test_row_336_ampersands_of_addresses_are_no_references() -> None:
    redactor = Redactor(SecretForms([("KEY", Secret("hunter2-correct-horse"))]))
    line = b"https://example.org/?a=1&b=2&cc=3&ltd=4\n" * 1000
    out = b"".join([redactor.feed(line) for _ in range(60)] + [redactor.close()])
    assert out == line * 60


def test_row_346_references_have_an_end_in_what_is_redacted_as_a_whole_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: 40 MiB of ``&lt`` in the answer of an executor or environment stopped the event loop for half a minute."""
    forms = SecretForms([("KEY", Secret("hunter2-correct-horse"))])
    read: list[int] = []
    split = secrets_module._dereferenced
    monkeypatch.setattr(secrets_module, "_dereferenced", lambda data: read.append(data.count(b"&")) or split(data))
    data = b"&lt" * (1 << 18) + b"&#104;unter2-correct-horse hunter2-correct-horse x&y"
    dirty = replace(RESULT, stdout=data * 4, stdout_cut_at=len(data) - 3, stderr=data)
    clean = redacted(dirty, forms)
    for out in (forms.redact(data), forms.text(data.decode()).encode(), clean.stdout, clean.stderr):
        assert out.startswith(b"&lt&lt")
        assert out.count(b"HTML character references") == 1  # as in a stream: it is said where it begins
        assert b"hunter2" not in out
        assert out.endswith(b"?#104;unter2-correct-horse [secret KEY] x?y")
    assert clean.stdout[: clean.stdout_cut_at].endswith(b"[secret KEY] ")
    assert sum(read) < 2 << 20
    usual = b"&lt;&#104;unter2-correct-horse&gt;" * 1000
    assert forms.redact(usual) == b"&lt;[secret KEY]&gt;" * 1000


async def test_row_346_a_large_result_is_redacted_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: also text without any reference was gone through on the loop, a second for 40 MiB."""
    forms = SecretForms([("KEY", SECRET)])
    threads: list[int] = []
    redact_all = SecretForms.redact_all

    def noted(self: SecretForms, data: bytes, *, references: bool = True) -> bytes:
        threads.append(threading.get_ident())
        return redact_all(self, data, references=references)

    monkeypatch.setattr(SecretForms, "redact_all", noted)
    small, large = (replace(RESULT, stdout=VALUE.encode() + b"." * size) for size in (10, 1 << 20))
    assert (await redacted_aside(large, forms)).stdout == b"[secret KEY]" + b"." * (1 << 20)
    assert set(threads).isdisjoint({threading.get_ident()})
    threads.clear()
    assert (await redacted_aside(small, forms)).stdout == b"[secret KEY].........."
    assert set(threads) == {threading.get_ident()}
    assert await redacted_aside(large, None) is large


async def test_secrets_of_others_are_kept_out_as_well(limits: SandboxPolicy, nothing_left: None) -> None:
    other = Secret("the-secret-of-another-skill")
    request = ExecutionRequest(
        ("python3", "-c", "import os; print('KEY' in os.environ); print('the-secret-of-' + 'another-skill')"),
        limits,
        redact=(("KEY", other),),
    )
    result = await local_sandbox().run(request)
    assert result.stdout == b"False\n[secret KEY]\n"


async def test_a_command_that_cannot_start_tells_no_secret(limits: SandboxPolicy, nothing_left: None) -> None:
    request = ExecutionRequest((f"/work/{VALUE}",), limits, env={"KEY": SECRET})
    with pytest.raises(SandboxError) as failed:
        await local_sandbox().run(request)
    assert VALUE not in "".join(traceback.format_exception(failed.value))
