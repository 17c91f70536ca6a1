"""The names that the walk over a Python program knows: what decodes, fetches, runs, sends, deletes."""

from __future__ import annotations

import re

DECODED, FETCHED, ENVIRON, KEYS, SPIED, STARTS, HOME = (
    "decoded",
    "fetched",
    "environ",
    "keys",
    "spied",
    "starts",
    "home",
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DECODERS = _words(
    "base64.b64decode base64.urlsafe_b64decode base64.standard_b64decode base64.b32decode base64.b16decode "
    "base64.b85decode base64.a85decode base64.decodebytes base64.decode binascii.unhexlify binascii.a2b_base64 "
    "binascii.a2b_hex binascii.a2b_uu bytes.fromhex bytearray.fromhex codecs.decode zlib.decompress gzip.decompress "
    "bz2.decompress lzma.decompress chr marshal.loads"
)
FETCHERS = _words(
    "urllib.request.urlopen urllib.request.urlretrieve urllib.urlopen urllib2.urlopen requests.get requests.post "
    "requests.request httpx.get httpx.post httpx.stream urllib3.request http.client.HTTPConnection "
    "http.client.HTTPSConnection dns.resolver.resolve dns.resolver.query dns.resolver.Resolver ftplib.FTP "
    "aiohttp.ClientSession requests.Session httpx.Client httpx.AsyncClient urllib3.PoolManager wget.download "
    "xmlrpc.client.ServerProxy imaplib.IMAP4_SSL imaplib.IMAP4 poplib.POP3_SSL telnetlib.Telnet paramiko.SSHClient "
    "websocket.create_connection websockets.connect pycurl.Curl"
)
SOCKETS = _words("socket.socket socket.create_connection ssl.wrap_socket asyncio.open_connection")
FETCHING_METHODS = _words("recv recvfrom recv_into urlopen")
RUNS_CODE = _words(
    "exec eval compile builtins.exec builtins.eval builtins.compile __builtins__.exec __builtins__.eval "
    "types.FunctionType types.CodeType code.interact runpy.run_path code.InteractiveInterpreter.runsource"
)
LOADS = _words(
    "pickle.loads pickle.load pickle.Unpickler cPickle.loads dill.loads dill.load cloudpickle.loads cloudpickle.load "
    "joblib.load marshal.loads marshal.load yaml.unsafe_load yaml.full_load jsonpickle.decode shelve.open"
)
RUNS_PROGRAMS = _words(
    "os.system os.popen os.execv os.execve os.execvp os.execvpe os.execl os.execlp os.spawnl os.spawnv os.spawnvp "
    "os.spawnlp os.posix_spawn os.startfile subprocess.run subprocess.call subprocess.Popen subprocess.check_call "
    "subprocess.check_output subprocess.getoutput subprocess.getstatusoutput pty.spawn commands.getoutput "
    "asyncio.create_subprocess_shell asyncio.create_subprocess_exec popen2.popen2"
)
SHELLS = _words("sh bash zsh dash ksh fish cmd cmd.exe powershell powershell.exe pwsh python python3 node perl ruby")
SENDERS = _words(
    "urllib.request.urlopen urllib.request.Request urllib.request.urlretrieve requests.get requests.post requests.put "
    "requests.patch requests.request requests.head requests.delete httpx.get httpx.post httpx.put httpx.patch "
    "httpx.request httpx.stream urllib3.request socket.gethostbyname socket.getaddrinfo socket.gethostbyname_ex "
    "dns.resolver.resolve dns.resolver.query webbrowser.open websockets.connect smtplib.SMTP.sendmail"
)
SENDING_METHODS = _words(
    "post put patch request send sendall sendto sendmail send_message add_header putheader upload_file upload_fileobj "
    "put_object storbinary publish resolve gethostbyname urlopen send_bytes send_json send_str"
)
CLIENTS = _words(
    "boto3 botocore azure paramiko ftplib smtplib telegram telebot discord slack_sdk github dropbox minio pika kafka"
    " redis pymongo psycopg2 aiohttp httpx requests websocket websockets socketio dns twilio sendgrid asyncssh fabric"
    " pyrebase firebase_admin supabase zmq paho gspread notion_client urllib3 http tftpy scapy socket"
)
SPIES = _words(
    "pynput.keyboard.Listener keyboard.on_press keyboard.hook keyboard.record keyboard.read_event PIL.ImageGrab.grab "
    "ImageGrab.grab pyautogui.screenshot mss.mss pyperclip.paste cv2.VideoCapture sounddevice.rec pyaudio.PyAudio "
    "browser_cookie3.load browser_cookie3.chrome browser_cookie3.firefox keyring.get_password keyring.get_credential "
    "win32crypt.CryptUnprotectData secretstorage.dbus_init getpass.getpass"
)
SECRET_MODULES = _words("os subprocess builtins __builtins__ sys pty importlib posix nt ctypes types")
DELETES = _words("shutil.rmtree os.remove os.unlink os.rmdir")
HOOKS = _words("sys.meta_path sys.path_hooks")

KEY_FILES = re.compile(
    r"\.ssh\b(?!/?(?:known_hosts|config))|\bid_(?:rsa|ed25519|ecdsa|dsa)\b(?!\.pub)|\.aws\b(?:/(?:credentials|sso|config))?"
    r"|\.git-credentials|\.netrc\b|\b_netrc\b|\.pypirc|\.npmrc|\.yarnrc|\.docker/config\.json|\.kube/config|\.gnupg"
    r"|\.config/(?:gh|hub|gcloud|op|rclone|doctl|heroku)\b|application_default_credentials|\.azure\b|\.boto\b|\.s3cfg"
    r"|\.databrickscfg|\.kaggle|\.huggingface|huggingface/token|\.cargo/credentials|\.terraform\.d|credentials\.tfrc"
    r"|\.vault-token|\.password-store|\.pgpass|\.my\.cnf|\.(?:bash|zsh|python|psql|mysql|node_repl)_history|fish_history"
    r"|\bLogin Data\b|(?:google-chrome|Google/Chrome|BraveSoftware|Microsoft/Edge|chromium|\.mozilla)\b"
    r"|Firefox/Profiles"
    r"|\blogins\.json|\bkey[34]\.db|cookies\.sqlite|Library/Keychains|login\.keychain|/etc/shadow|\bwallet\.dat"
    r"|\.electrum|solana/id\.json|\.ethereum|Exodus|Local State\b|/proc/[\w*/]*environ|\.claude/\.credentials"
    r"|\.codex/auth|\.gemini/oauth|kubernetes\.io/serviceaccount|\.wg[/ ]|/etc/wireguard|\.tsh\b|\.fly/config"
    r"|Telegram Desktop/tdata|discord/Local Storage|Slack/(?:Cookies|storage)|\.1password|Bitwarden|\.keepass|\.kdbx",
    re.IGNORECASE,
)
"""Files and folders that hold keys, passwords, cookies or wallets of a person."""
START_FILES = re.compile(
    r"authorized_keys|\.(?:bashrc|bash_profile|bash_login|profile|zshrc|zprofile|zshenv|zlogin|xprofile|xinitrc)\b"
    r"|LaunchAgents|LaunchDaemons|\.config/(?:autostart|systemd)|/etc/(?:cron|profile|rc\.local|ld\.so\.preload|sudoers"
    r"|systemd|init\.d|pam)|\.git/hooks|(?:site|user)customize\.py|\.pth$|Start Menu|Startup\b|CurrentVersion\\+Run"
    r"|\.claude/(?:settings|CLAUDE|hooks)|\.codex/(?:config|AGENTS)|\.gemini/(?:settings|GEMINI)|\.cursor/(?:mcp|hooks)",
    re.IGNORECASE,
)
GRAVE = re.compile(r"authorized_keys|ld\.so\.preload|sudoers|(?:site|user)customize|\.pth$|LaunchDaemons", re.MULTILINE)
RUNS_TEXT = _words("exec eval builtins.exec builtins.eval __builtins__.exec __builtins__.eval types.FunctionType")
DANGEROUS = _words("exec eval compile system popen Popen run call check_output getoutput spawn execv execvp __import__")
FILLERS = _words("append extend add update write insert writestr put write_bytes write_text")
SENDING_PROGRAM = re.compile(
    r"^\s*(?:\S*/)?(?:ba|z)?(?:sh -l?c )?"
    r"(?:curl|wget|nc|ncat|scp|rsync|rclone|ftp|sftp|dig|nslookup|aws s3|gsutil|mail|sendmail|telnet)\b"
)
HOST = re.compile(r"https?://([\w.-]+)")
OWN = (
    (r"kaggle", "kaggle.com"),
    (r"huggingface", "huggingface.co"),
    (r"\.config/gh|\.git-credentials|\.netrc", "github.com"),
    (r"gcloud|application_default", "googleapis.com"),
    (r"\.aws", "amazonaws.com"),
    (r"npmrc", "npmjs.org"),
    (r"pypirc", "pypi.org"),
    (r"\.azure", "azure.com"),
    (r"\.codex", "openai.com"),
    (r"\.claude", "anthropic.com"),
)
