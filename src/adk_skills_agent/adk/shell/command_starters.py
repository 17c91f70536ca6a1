"""Programs that start other programs, and how their command lines tell which."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Programs that start others and are called in too many ways to say where the command begins.
_STARTING = (
    "prlimit taskset setpriv setarch linux32 linux64 i386 x86_64 uname26 chrt choom nsenter dbus-run-session ssh-agent "
    "runuser pkexec systemd-run start-stop-daemon unbuffer fakeroot bwrap numactl toybox uclampset pipesz setpgid "
    "coresched runcon logsave run-parts dpkg-architecture capsh aa-exec cgexec eatmydata valgrind ltrace rlwrap "
    "chronic xvfb-run gpg-agent csh tcsh fish yash posh sotruss catchsegv enosys pee mispipe hyperfine entr cpulimit "
    "proot npx bunx uvx pipx nix-shell perf debconf "
    "systemd-inhibit systemd-cat dbus-launch sem tini dumb-init gosu su-exec torsocks torify proxychains proxychains4 "
    "faketime firejail tmux screen at batch newgrp daemon daemonize nodemon watchexec gdb expect s6-setuidgid "
    "setuidgid softlimit envdir chpst pwsh powershell nu elvish xonsh osh ysh"
)
OTHER_STARTERS = frozenset(_STARTING.split())

_EDITION = re.compile(r"[-.](?:static|\d[\d.]*)$")
_SHELL = re.compile(r"(?:r?(?:ba|z|k)|d?a|[mlo]k|pdk)?sh[\d.]*")


def without_edition(name: str) -> str:
    """The name of a program without its version: ``bash`` for ``bash-5.2`` and ``bash-static``."""
    return _EDITION.sub("", name)


def is_shell(name: str) -> bool:
    """Whether a program is a shell with the syntax of ``sh`` (row 428)."""
    return _SHELL.fullmatch(name) is not None


# Variables that name a program, its options or the folder of its settings (row 316), besides those nobody may grant.
_NAMING = (
    "PATH HOME XDG_CONFIG_HOME PAGER MANPAGER EDITOR VISUAL BROWSER SHELL LESS SSH_ASKPASS SUDO_ASKPASS TAR_OPTIONS "
    "MAKEFLAGS GNUMAKEFLAGS MAKEFILES RSYNC_RSH CVS_RSH SVN_SSH ZIPOPT CURL_HOME WGETRC INPUTRC "
    "http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY"
)
_NAMES = frozenset(_NAMING.split())
_OF_GIT_AND_BASH = ("GIT_", "BASH_")
_HARMLESS = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "GIT_MERGE_AUTOEDIT")


def names_programs(variable: str) -> bool:
    """Whether a variable decides which program another one starts, or what that one is told."""
    return variable in _NAMES or (variable.startswith(_OF_GIT_AND_BASH) and not variable.startswith(_HARMLESS))


@dataclass(frozen=True, slots=True)
class Starter:
    """The command-line form of a program that starts another."""

    alone: frozenset[str] = frozenset()  # options without a value
    with_value: frozenset[str] = frozenset()  # options with one
    lines: frozenset[str] = frozenset()  # options whose value a shell reads
    asks: frozenset[str] = frozenset()  # options with which it starts nothing
    before: int = 0  # words of its own before the command
    assignments: bool = False  # whether ``NAME=value`` may stand before the command
    adds: bool = False  # whether it adds arguments of its own
    is_line: bool = False  # whether a single argument is read by a shell
    opens_shell: bool = False  # whether it starts a shell where it is given no command


def _options(text: str) -> frozenset[str]:
    return frozenset(text.split())


STARTERS: Mapping[str, Starter] = {
    "env": Starter(
        alone=_options("-i --ignore-environment -0 --null -v --debug"),
        with_value=_options("-u --unset -C --chdir"),
        lines=_options("-S --split-string"),
        asks=_options("--help --version"),
        assignments=True,
    ),
    "sudo": Starter(
        alone=_options("-n -E -H -S -b -k -i -s -A -P --preserve-env --non-interactive --login --shell"),
        with_value=_options("-u -g -h -p -C -r -t -U -D -R -T --user --group --host --chdir --prompt"),
        asks=_options("-l -v -K -V --list --validate --version"),
        assignments=True,
        opens_shell=True,
    ),
    "doas": Starter(alone=_options("-n -s -L"), with_value=_options("-u -C -a")),
    "timeout": Starter(
        alone=_options("--preserve-status --foreground -v --verbose -p -f"),
        with_value=_options("-k --kill-after -s --signal"),
        asks=_options("--help --version"),
        before=1,
    ),
    "nice": Starter(with_value=_options("-n --adjustment")),
    "ionice": Starter(alone=_options("-t"), with_value=_options("-c -n -p --class --classdata")),
    "nohup": Starter(),
    "setsid": Starter(alone=_options("-c -f -w --ctty --fork --wait")),
    "stdbuf": Starter(with_value=_options("-i -o -e --input --output --error")),
    "time": Starter(alone=_options("-p -v -a"), with_value=_options("-f -o --format --output"), assignments=True),
    "command": Starter(alone=_options("-p"), asks=_options("-v -V")),
    "builtin": Starter(),
    "exec": Starter(alone=_options("-c -l -cl"), with_value=_options("-a")),
    "coproc": Starter(),
    "xargs": Starter(
        alone=_options(
            "-0 --null -r --no-run-if-empty -t --verbose -x --exit -p --interactive -o --open-tty "
            "-i -l -e --replace --max-lines --eof"
        ),
        with_value=_options("-I -n -L -P -s -d -E -a --max-args --max-procs --max-chars --delimiter --arg-file"),
        asks=_options("--help --version --show-limits"),
        adds=True,
    ),
    "parallel": Starter(
        alone=_options("-0 --null -k --keep-order --bar --will-cite --tag"),
        with_value=_options("-j --jobs -n -a -I"),
        adds=True,
        is_line=True,
        opens_shell=True,
    ),
    "watch": Starter(
        alone=_options("-d -t -b -e -g -c -x --differences --no-title --errexit --chgexit --color --exec"),
        with_value=_options("-n --interval"),
        is_line=True,
    ),
    "busybox": Starter(asks=_options("--list --help")),
    "chroot": Starter(with_value=_options("--userspec --groups"), before=1, opens_shell=True),
    "flock": Starter(
        alone=_options("-s -x -e -n -u -o -F --shared --exclusive --nonblock"),
        with_value=_options("-w -E --timeout --conflict-exit-code"),
        lines=_options("-c --command"),
        before=1,
    ),
    "strace": Starter(alone=_options("-f -q -v -tt -t -c -C -y"), with_value=_options("-e -o -s -p -u -E")),
    "unshare": Starter(alone=_options("-r -n -m -p -f -U -i -u -C --fork --net --pid --user"), opens_shell=True),
    "script": Starter(
        alone=_options("-q -a -e -f --quiet --append --return --flush"),
        lines=_options("-c --command"),
        before=1,
        opens_shell=True,
    ),
    "sg": Starter(lines=_options("-c"), before=1, is_line=True, opens_shell=True),
    "su": Starter(
        alone=_options("-l -m -p --login"),
        with_value=_options("-s -g -G --shell --group"),
        lines=_options("-c --command"),
        before=1,
        opens_shell=True,
    ),
}


_RUNNER = Starter(
    alone=_options(
        "-q --quiet -v --verbose --offline --no-sync --locked --frozen --isolated --no-project --active --exact "
        "--all-extras --all-groups --no-dev --no-cache --refresh"
    ),
    with_value=_options(
        "-p --python --with --with-editable --with-requirements --extra --group --only-group --package --project "
        "--directory --env-file"
    ),
    asks=_options("-m --module -s --script -h --help"),  # Python runs it
)
_OF_CONDA = Starter(
    alone=_options("-v --verbose --no-capture-output --live-stream"), with_value=_options("-n --name -p --prefix --cwd")
)
_OF_NPM = Starter(
    alone=_options("-y --yes --no --workspaces -r --recursive --offline -q --quiet"),
    with_value=_options("-p --package --workspace"),
    lines=_options("-c --call"),
)
_IN_A_PLACE = Starter(before=1)  # a folder, a toolchain or a network before the command


def _runners(names: str, verbs: str, starter: Starter) -> dict[str, Mapping[str, Starter]]:
    return {name: dict.fromkeys(verbs.split(), starter) for name in names.split()}


RUNNERS: Mapping[str, Mapping[str, Starter]] = {
    "uv": {"run": _RUNNER, "tool run": Starter()},
    **_runners("poetry pipenv pdm hatch pixi rye devbox volta doppler op", "run", Starter()),
    **_runners("conda mamba micromamba", "run", _OF_CONDA),
    **_runners("npm pnpm yarn", "exec x dlx", _OF_NPM),
    **_runners("bun", "run exec x", Starter()),
    **_runners("bundle pyenv rbenv nodenv asdf mise fnm opam stack cabal aws-vault", "exec x", Starter()),
    **_runners("direnv", "exec", _IN_A_PLACE),
    **_runners("rustup", "run", _IN_A_PLACE),
    "ip": {"netns exec": _IN_A_PLACE, "vrf exec": _IN_A_PLACE},
    "cmake": {"-E env": Starter(assignments=True), "-E time": Starter(), "-E chdir": _IN_A_PLACE},
}
"""Programs that start what stands behind a word of theirs."""

LINE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "split": ("--filter",),
    "sort": ("--compress-program",),
    "tar": ("-I", "--use-compress-program", "--to-command", "--checkpoint-action", "--info-script", "--rsh-command"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "man": ("-P", "--pager", "-H"),
    "zip": ("-TT", "--unzip-command"),
    "install": ("--strip-program",),
    "ssh": ("-o", "-F"),
    "scp": ("-o", "-F", "-S", "-D"),
    "sftp": ("-o", "-F", "-S", "-D"),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "fdfind": ("-x", "-X", "--exec", "--exec-batch"),
    "rg": ("--pre=",),
    "hg": ("--config",),
    "nix": ("-c", "--command"),
    "dpkg": ("--pre-invoke", "--post-invoke"),
    "wget": ("--use-askpass",),
}
"""Options of programs that start what their value says."""

_OF_ANY_COMMAND = ("--exec", "--upload-pack", "--receive-pack", "--sendmail-cmd", "--smtp-server")
_OF_ONE_COMMAND: Mapping[str, tuple[str, ...]] = {
    "rebase": ("-x",),
    "difftool": ("-x", "--extcmd"),
    "grep": ("-O", "--open-files-in-pager"),
    "clone": ("-u", "-c", "--config"),
    "submodule": ("foreach",),
    "filter-branch": ("--",),
    "bisect": ("run",),
}
# Settings for one call that name no program.
_PLAIN_SETTINGS = (
    "user. author. committer. color. advice. init.defaultbranch core.quotepath core.autocrlf core.eol core.ignorecase "
    "core.filemode core.abbrev core.longpaths core.safecrlf core.whitespace core.precomposeunicode log. status. blame. "
    "pull. push.default merge.conflictstyle merge.ff diff.algorithm diff.renames diff.context diff.noprefix "
    "diff.mnemonicprefix commit.gpgsign tag.gpgsign safe.directory protocol.version gc.auto fetch.prune column. i18n."
)
_PLAIN = tuple(_PLAIN_SETTINGS.split())


_WITH_VALUE = ("-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source")


# Other names for what a command of git does.
_SAME_OF_GIT: Mapping[tuple[str, ...], str] = {
    ("send-pack",): "push",
    ("http-push",): "push",
    ("subtree", "push"): "push",
    ("lfs", "push"): "push",
    ("fetch-pack",): "fetch",
    ("http-fetch",): "fetch",
}


def same_for_git(words: Sequence[str]) -> tuple[str, int]:
    """The command that arguments of ``git`` have another name of, and where its arguments begin; empty for none."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        position += 2 if words[position] in (*_WITH_VALUE, "-c", "--config-env") else 1
    for names, command in _SAME_OF_GIT.items():
        if tuple(words[position : position + len(names)]) == names:
            return command, position + len(names)
    return "", 0


def started_by_git(words: Sequence[str]) -> str:
    """Why arguments of ``git`` may start a program that the caller chose; empty when they do not."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        option, _, setting = words[position].partition("=")
        if option == "--exec-path" and setting:
            return "the option --exec-path of 'git' says where its programs are"
        if words[position] in ("-c", "--config-env"):
            position += 1
            setting = words[position] if position < len(words) else ""
        if option in ("-c", "--config-env") and not setting.lower().startswith(_PLAIN):
            return f"the setting {setting.partition('=')[0][:40]} of 'git' may name a program"
        position += 2 if words[position] in _WITH_VALUE else 1
    command, rest = words[position] if position < len(words) else "", words[position + 1 :]
    for word in rest:
        typed = word.partition("=")[0]
        letters = word[1:] if word.startswith("-") and not word.startswith("--") else ""
        for option in (*_OF_ANY_COMMAND, *_OF_ONE_COMMAND.get(command, ())):
            in_part = len(typed) > 3 and option.startswith(typed)
            if word.startswith(option) or in_part or (len(option) == 2 and option[1] in letters):
                return f"'git {command} {typed[:20]}' starts a program"
    return ""
