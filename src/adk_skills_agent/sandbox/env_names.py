"""Names an environment grant must not have: they change how a process is started, not what it knows (attack row 34)."""

from __future__ import annotations

import re

from adk_skills_agent.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Harmless settings of Python; everything else called PYTHON... decides which code it loads.
_PYTHON_ALLOWED = frozenset(
    {
        "PYTHONASYNCIODEBUG",
        "PYTHONCOERCECLOCALE",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONFAULTHANDLER",
        "PYTHONHASHSEED",
        "PYTHONINTMAXSTRDIGITS",
        "PYTHONIOENCODING",
        "PYTHONMALLOC",
        "PYTHONNOUSERSITE",
        "PYTHONOPTIMIZE",
        "PYTHONTRACEMALLOC",
        "PYTHONTZPATH",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
    }
)
_LOADERS = ("LD_", "DYLD_", "PYTHON", "BASH_FUNC_", "GIT_CONFIG", "GIT_SSH", "LUA_INIT", "MALLOC_", "NPM_CONFIG_")
_STARTERS = frozenset(
    {
        *(
            "BASH_ENV",
            "BASHOPTS",
            "CDPATH",
            "ENV",
            "GLOBIGNORE",
            "IFS",
            "PROMPT_COMMAND",
            "PS4",
            "SHELLOPTS",
            "ZDOTDIR",
        ),
        *("NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "NODE_PATH"),
        *("PERL5DB", "PERL5LIB", "PERL5OPT", "PERLLIB", "RUBYLIB", "RUBYOPT", "GEM_HOME", "GEM_PATH"),
        *("CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
        *("PHPRC", "PHP_INI_SCAN_DIR", "R_ENVIRON", "R_ENVIRON_USER", "R_PROFILE", "R_PROFILE_USER"),
        *("DOTNET_STARTUP_HOOKS", "CORECLR_PROFILER", "CORECLR_PROFILER_PATH", "COR_PROFILER", "COR_PROFILER_PATH"),
        *(
            "GCONV_PATH",
            "GETCONF_DIR",
            "GLIBC_TUNABLES",
            "HOSTALIASES",
            "LOCALDOMAIN",
            "LOCPATH",
            "NLSPATH",
            "RES_OPTIONS",
        ),
        *("OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "LESSOPEN"),
    }
)
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!OR)|COOKIE|PRIVATE|DSN|DATABASE_URL|CONNECTION_STRING"
)


def check_env_name(name: str) -> None:
    """Refuse what is no portable variable name (a shell would drop it silently), and what would start other code.

    Raises:
        ConfigError: ``name`` is not letters, digits and underscores, or changes how processes are started.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of an environment variable: use letters, digits and underscores."
        )
    upper = name.upper()
    if upper in _STARTERS or (upper.startswith(_LOADERS) and upper not in _PYTHON_ALLOWED):
        raise ConfigError(
            f"The variable {name!r} is not granted to scripts: it changes which code a process loads when it starts. "
            "Give the script what it needs under another name, or as an argument."
        )


def check_search_path(value: str) -> None:
    """Refuse a PATH with an empty or relative entry: it would mean whatever the script's working directory holds.

    Raises:
        ConfigError: There is such an entry.
    """
    for entry in value.split(":"):
        if not entry.startswith("/"):
            raise ConfigError(f"PATH granted to scripts must hold absolute folders only, not {entry!r}.")


def looks_secret(name: str) -> bool:
    """Whether a variable's name suggests that its value is a secret."""
    return _SECRET.search(name.upper()) is not None
