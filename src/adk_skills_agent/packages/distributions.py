"""From the name a program imports to the distribution that brings it: a table, kept by hand.

The name of an import says nothing about who published the package of the same name, so a name that is not in the
table has no distribution here: a skill has to declare it. To add one, look at the distribution's own files, then put
it into :data:`_SAME` when both names are equal (``-`` and ``_`` count as one) or into :data:`_OTHER`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping

# Imported by the name of the distribution.
_SAME = """
absl_py accelerate aenum aeon allotropy altair anndata annoy anthropic anyio apprise apscheduler arboreto arrow arviz
asana asgiref asteval astropy astroquery asyncpg atproto attrs av backoff bandit bcrypt behave benchling_sdk
bioservices bitsandbytes black bleach blinker bm25s bokeh boltons boto3 botocore bottle bottleneck branca browser_use
build cachetools cairosvg capstone captum cartopy catboost cattrs cbor2 celery cellxgene_census certifi cffi cftime
chardet charset_normalizer chromadb ciso8601 click cobra cohere colorama colorlog contourpy convertdate coverage
crewai crewai_tools croniter cryptography cssselect cupy curl_cffi cvxpy cycler cython dash dask dataclasses_json
datamol datasets datasketch dateparser deepchem deepdiff deepl defusedxml deltalake demjson3 diagrams diffusers dill
diskcache distributed django docker dockerfile_parse docling docopt docutils docx2pdf docx2txt docxtpl dspy duckdb
duckduckgo_search dulwich elasticsearch email_validator emoji environs ephem et_xmlfile etils exa_py exifread faker
falcon fastapi fastavro fastembed fastmcp feedparser filelock fiona flask flask_cors flask_talisman flowio fluidsim
folium fonttools fpdf2 freezegun frozendict fsspec ftfy furl fuzzywuzzy gensim geojson geopandas geopy gevent ghapi
gitlint gmpy2 gradio graphviz great_expectations greenlet grpclib gseapy gspread gtars guidance gunicorn gymnasium h11
h2 h5py haversine hdbscan histolab holidays html2text html5lib htmldate httplib2 httptools httpx huggingface_hub
humanize hvac hvplot hypothesis icalendar icecream ics idc_index idna ijson imagehash imageio imapclient img2pdf
immutabledict inflect inflection instructor interrogate invoke ipython ipywidgets isodate isort itsdangerous jax
jellyfish jieba jinja2 jmespath joblib json5 json_repair jsonlines jsonpatch jsonpath_ng jsonschema kagglehub kaleido
keras keyring kombu kornia kubernetes lamindb langchain langchain_anthropic langchain_chroma langchain_community
langchain_core langchain_openai langchain_pinecone langchain_text_splitters langchain_voyageai langcodes langdetect
langfuse langgraph langid langsmith latch ldap3 librosa lifelines lightgbm lightning limits linkify_it_py litellm
litgpt livereload llama_index llmlingua locust loguru lxml lz4 magika mako manim mapclassify markdown markdown2
markdown_it_py markdownify markitdown marko markupsafe marshmallow mashumaro matchms matplotlib mcp mdformat mdurl
medchem mediapipe meshio mido mistralai mistune mitmproxy mkdocs mlflow mlxtend modal mongomock more_itertools moto
moviepy mpmath msal msgpack msgspec msoffcrypto_tool mss multidict mutagen mypy mysqlclient nameparser nbclient
nbconvert nbformat neo4j netaddr netcdf4 netmiko networkx neurokit2 nh3 ninja nltk nnsight notebook notion_client nox
num2words numba numexpr numpy oauthlib odfpy ollama omegaconf onnx onnxruntime openai openapi_spec_validator openmm
openpyxl opentelemetry_api opentelemetry_sdk optax optuna orjson osmnx outlines oyaml packaging pandas pandera panel
papermill parallel_web paramiko parse parsel passlib pathml pathspec pathvalidate patsy pdf2docx pdf2image pdfkit
pdfminer.six pdfplumber peewee peft pendulum pennylane pexpect phonenumbers pick pikepdf pillow pillow_heif pinecone
pingouin pint pip_audit pipdeptree playwright plotly plotnine pluggy plumbum poetry polars polars_bio portalocker
pptx2md praw prefect presidio_analyzer presidio_anonymizer prettytable probeinterface prometheus_client prompt_toolkit
prophet protobuf psutil psycopg psycopg2 ptyprocess pufferlib pulp py2neo py3dmol pyairtable pyarrow pyautogui pybtex
pycountry pycparser pydantic pydantic_ai pydantic_settings pydeseq2 pydicom pydot pydub pyflakes pygame pygithub
pygments pyhealth pyinstaller pykakasi pylatexenc pylint pymc pymed pymongo pymoo pymupdf4llm pymysql pynacl pynput
pyopenms pypandoc pyparsing pypdf pypdf2 pypdf3 pypdfium2 pyperclip pypinyin pyppeteer pyproj pyqrcode pyreadstat
pyright pysam pyscf pyshark pysolr pyspark pystache pytesseract pytest pytest_asyncio pytorch_lightning pytrends
pytube pytubefix pytz pyvene pyvis pyvista pyyaml_include pyzbar pyzipper qdrant_client qiskit qiskit_ibm_runtime
qrcode quart questionary qutip rank_bm25 rapidfuzz rasterio ratelimit ray rdflib rdkit readability_lxml readchar
readme_renderer rebound redis regex replicate reportlab requests requests_cache requests_html requests_oauthlib
requests_toolbelt resend retry rich rioxarray rouge_score rpy2 rsa rtree ruff s3fs s3transfer sacrebleu sae_lens
safetensors sanic scanpy scapy schedule schemathesis scholarly scipy scrapy scvelo seaborn segno selectolax selenium
semver sentence_transformers sentencepiece sentry_sdk setproctitle setuptools shap shapely shellingham shodan
simple_salesforce simplejson simpy six skyfield slack_bolt slack_sdk smmap smolagents sniffio snowballstemmer
snowflake_connector_python sortedcontainers soundfile soupsieve spacy spikeinterface spotipy sqlalchemy sqlfluff
sqlglot sqlite_utils sqlmodel sqlparse srsly sse_starlette stable_baselines3 stanza starlette statsmodels streamlit
stripe structlog sumy supabase svglib svgwrite swifter sympy syrupy tabula_py tabulate tavily_python tblib temporalio
tenacity tensorboard tensorflow tensorflow_hub termcolor testcontainers textblob textdistance textract textstat
textual thefuzz threadpoolctl tifffile tiktoken tiledb tiledbsoma timesfm timm tinycss2 tinydb tldextract together
tokenizers toml tomli tomli_w tomlkit toolz torch torch_geometric torchaudio torchdrug torchmetrics torchvision
tornado tox tqdm trafilatura trailmark traitlets transformer_lens transformers tree_sitter trio trl ttkbootstrap
tweepy twilio typeguard typer typing_extensions tzdata tzlocal ujson umap_learn undetected_chromedriver unidecode
unidiff unsloth unstructured uritemplate urllib3 uszipcode uvicorn uvloop vaderSentiment validators vcrpy
vega_datasets virtualenv vllm volatility3 wandb watchdog watchfiles wcwidth weasyprint weaviate_client webcolors
webdriver_manager websocket_client websockets werkzeug whoosh widgetsnbextension wikipedia wordcloud wrapt xarray
xgboost xhtml2pdf xlrd xlsxwriter xlwings xlwt xmlschema xmltodict xxhash yake yamllint yapf yarl ydata_profiling
yfinance youtube_transcript_api yt_dlp zarr zeep zeroconf zipp zstandard
"""

# Imported by another name: the import, then the distribution. A dotted import is more exact than its first part.
_OTHER = """
absl absl-py | aiofiles aiofiles | aiohttp aiohttp | aiosqlite aiosqlite | airflow apache-airflow | alembic alembic
apiclient google-api-python-client | attr attrs | audiocraft audiocraft | autogen_agentchat autogen-agentchat
auto_gptq auto-gptq | azure.core azure-core | azure.identity azure-identity
azure.keyvault.secrets azure-keyvault-secrets | azure.storage.blob azure-storage-blob | azure.cosmos azure-cosmos
azure.mgmt.resource azure-mgmt-resource | azure.ai.projects azure-ai-projects | azure.ai.inference azure-ai-inference
azure.monitor.opentelemetry azure-monitor-opentelemetry | azure.servicebus azure-servicebus
azure.eventhub azure-eventhub | azure.search.documents azure-search-documents | azure.data.tables azure-data-tables
azure.ai.ml azure-ai-ml | azure.ai.agents azure-ai-agents | barcode python-barcode | bio bio | Bio biopython
bleak bleak | bs4 beautifulsoup4 | cairo pycairo | clickhouse_connect clickhouse-connect
clickhouse_driver clickhouse-driver | cloudscraper cloudscraper | community python-louvain
compressed_tensors compressed-tensors | configargparse ConfigArgParse | Crypto pycryptodome | Cryptodome pycryptodomex
cv2 opencv-python-headless | dateutil python-dateutil | discord discord.py | dns dnspython | docx python-docx
dotenv python-dotenv | dxpy dxpy | slugify python-slugify | tdc PyTDC | autogen pyautogen | firecrawl firecrawl-py
odps pyodps | Cython Cython | py3Dmol py3Dmol | primer3 primer3-py | easyocr easyocr | ebooklib EbookLib
elftools pyelftools | engineio python-engineio | ete3 ete3 | Evtx python-evtx | exif exif | extract_msg extract-msg
faiss faiss-cpu | ffmpeg ffmpeg-python | fitz PyMuPDF | pymupdf PyMuPDF | flash_attn flash-attn | fontTools fonttools
fpdf fpdf2 | gi PyGObject | git GitPython | github PyGithub | gitlab python-gitlab | google.adk google-adk
google.api_core google-api-core | google.auth google-auth | google_auth_oauthlib google-auth-oauthlib
google_auth_httplib2 google-auth-httplib2 | google.cloud.aiplatform google-cloud-aiplatform
google.cloud.bigquery google-cloud-bigquery | google.cloud.firestore google-cloud-firestore
google.cloud.logging google-cloud-logging | google.cloud.pubsub google-cloud-pubsub
google.cloud.pubsub_v1 google-cloud-pubsub | google.cloud.secretmanager google-cloud-secret-manager
google.cloud.speech google-cloud-speech | google.cloud.storage google-cloud-storage
google.cloud.texttospeech google-cloud-texttospeech | google.cloud.translate google-cloud-translate
google.cloud.vision google-cloud-vision | google.cloud.documentai google-cloud-documentai
google.cloud.spanner google-cloud-spanner | google.cloud.monitoring_v3 google-cloud-monitoring
google.genai google-genai | google.generativeai google-generativeai | google.oauth2 google-auth
google.protobuf protobuf | googleapiclient google-api-python-client | googlemaps googlemaps
googlesearch googlesearch-python | grpc grpcio | hcl2 python-hcl2 | impacket impacket | IPython ipython
jenkins python-jenkins | jira jira | jks pyjks | jose python-jose | jwt PyJWT | kafka kafka-python
keystone keystone-engine | lief lief | llama_cpp llama-cpp-python | ldap python-ldap | lightning lightning
linkedin_api linkedin-api | louvain louvain | magic python-magic | mamba_ssm mamba-ssm | markdown Markdown
markdown_it markdown-it-py | MDAnalysis MDAnalysis | mistletoe mistletoe | mp_api mp-api
msoffcrypto msoffcrypto-tool | mysql.connector mysql-connector-python | MySQLdb mysqlclient | nacl PyNaCl
nemoguardrails nemoguardrails | nmap python-nmap | odf odfpy | olefile olefile | oletools oletools | OpenSSL pyOpenSSL
openbabel openbabel-wheel | opentelemetry opentelemetry-api | opentelemetry.sdk opentelemetry-sdk
opentelemetry.exporter.otlp opentelemetry-exporter-otlp | osgeo GDAL | oqs liboqs-python | pandas_ta pandas-ta
parallel parallel-web | paho paho-mqtt | pdfminer pdfminer.six | pefile pefile | PIL pillow | pkg_resources setuptools
plexapi PlexAPI | portpicker portpicker | pptx python-pptx | psycopg2 psycopg2-binary | pwn pwntools
PyInstaller pyinstaller | PyPDF2 PyPDF2 | pycocotools pycocotools | pylab matplotlib | pymatgen pymatgen
pypff libpff-python | PyQt5 PyQt5 | PyQt6 PyQt6 | PySide2 PySide2 | PySide6 PySide6 | pysnmp pysnmp
pythoncom pywin32 | pytsk3 pytsk3 | pywintypes pywin32 | rarfile rarfile | regipy regipy | Registry python-registry
readability readability-lxml | r2pipe r2pipe | rowan rowan-python | ruamel.yaml ruamel.yaml | ruamel ruamel.yaml
scripts - | sendgrid sendgrid | serial pyserial | shap shap | sigma pysigma | skbio scikit-bio | skimage scikit-image
sklearn scikit-learn | sksurv scikit-survival | skops skops | snowflake.connector snowflake-connector-python
snowflake.snowpark snowflake-snowpark-python | socketio python-socketio | socks PySocks | sounddevice sounddevice
speech_recognition SpeechRecognition | stix2 stix2 | surprise scikit-surprise | tabula tabula-py
taxii2client taxii2-client | tavily tavily-python | telegram python-telegram-bot | telethon Telethon | tlsh py-tlsh
tree_sitter_languages tree-sitter-languages | umap umap-learn | unicorn unicorn | usb pyusb
vertexai google-cloud-aiplatform | vobject vobject | vt vt-py | weaviate weaviate-client | websocket websocket-client
whisper openai-whisper | faster_whisper faster-whisper | win32api pywin32 | win32com pywin32 | win32con pywin32
wx wxPython | xdist pytest-xdist | Xlib python-xlib | xlsx2csv xlsx2csv | xmlsec xmlsec | yaml PyYAML
yara yara-python | zmq pyzmq | zoneinfo_data tzdata | docling_core docling-core | llama_parse llama-parse
qdrant_client qdrant-client | zxcvbn zxcvbn | thinc thinc | pypandoc pypandoc-binary | edge_tts edge-tts | gtts gTTS
pyttsx3 pyttsx3 | noisereduce noisereduce | pyperclip pyperclip | notion_client notion-client
todoist_api_python todoist-api-python | asyncpraw asyncpraw | ddgs ddgs | newspaper newspaper3k | pyzotero pyzotero
habanero habanero | arxiv arxiv | semanticscholar semanticscholar | pubchempy PubChemPy
chembl_webresource_client chembl-webresource-client
SimpleITK SimpleITK | pystac_client pystac-client | planetary_computer planetary-computer | mpl_toolkits matplotlib
scvi scvi-tools | argon2 argon2-cffi | gcsfs gcsfs | deepspeed deepspeed | lm_eval lm-eval
phoenix arize-phoenix | cirq cirq | ee earthengine-api | rio_cogeo rio-cogeo | omero omero-py | opentrons opentrons
sglang sglang | langchain_experimental langchain-experimental | langchain_google_genai langchain-google-genai
contextily contextily | paypalrestsdk paypalrestsdk
"""


@functools.cache
def _table() -> Mapping[str, str]:
    table = {name.replace("-", "_"): name.replace("_", "-") for name in _SAME.split()}
    for pair in _OTHER.replace("|", "\n").strip().splitlines():
        module, distribution = pair.split()
        table[module] = distribution if distribution != "-" else ""
    return table


def distribution_of(module: str) -> str | None:
    """The distribution that brings a module; None when the table does not know one.

    The longest part of ``module`` that is in the table decides.
    """
    table = _table()
    name = module
    while name:
        if name in table:
            return table[name] or None
        name = name.rpartition(".")[0]
    return None


def is_standard(module: str) -> bool:
    """Whether a module is part of Python itself."""
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names or top in _FORMER
    # What a newer Python left out is no distribution either: the program wants an older Python.


_FORMER = frozenset(
    {"asynchat", "asyncore", "cgi", "cgitb", "crypt", "distutils", "imp", "pipes", "smtpd", "telnetlib"}
)

# Programs that a skill calls: how Debian's package is called, where not like the program.
_DEBIAN = """
7z p7zip-full | 7za p7zip-full | aws awscli | convert imagemagick | magick imagemagick | identify imagemagick
dig bind9-dnsutils | nslookup bind9-dnsutils | docker docker.io | dot graphviz | fd fd-find | gs ghostscript
gpg gnupg | go golang | ip iproute2 | java default-jre-headless | javac default-jdk-headless | latexmk latexmk
libreoffice libreoffice | soffice libreoffice | lualatex texlive-luatex | make make | mysql default-mysql-client
nc netcat-openbsd | ncat ncat | netstat net-tools | node nodejs | pdflatex texlive-latex-base | xelatex texlive-xetex
pdftoppm poppler-utils | pdftotext poppler-utils | pdfinfo poppler-utils | pdfimages poppler-utils | pdftk pdftk-java
pip python3-pip | pip3 python3-pip | psql postgresql-client | rg ripgrep | Rscript r-base-core | redis-cli redis-tools
sox sox | sqlite3 sqlite3 | ssh openssh-client | scp openssh-client | tesseract tesseract-ocr | unrar unrar-free
wkhtmltopdf wkhtmltopdf | whois whois | xmllint libxml2-utils | xxd xxd | yq yq | exiftool libimage-exiftool-perl
jq jq | bc bc | git git | curl curl | wget wget | ffmpeg ffmpeg | ffprobe ffmpeg | pandoc pandoc | qpdf qpdf
unzip unzip | zip zip | tree tree | rsync rsync | openssl openssl | nmap nmap | ruby ruby | perl perl | php php-cli
lua lua5.4 | npm npm | npx npm | shellcheck shellcheck | tmux tmux | gh gh | ghostscript ghostscript
inkscape inkscape | cmake cmake | gcc gcc | g++ g++ | rustc rustc | cargo cargo | protoc protobuf-compiler
socat socat | parallel parallel
"""


@functools.cache
def _debian() -> Mapping[str, str]:
    pairs = (pair.partition(" ") for pair in map(str.strip, _DEBIAN.replace("|", "\n").splitlines()) if pair)
    return {program: package for program, _, package in pairs}


def debian_package(program: str) -> str | None:
    """Debian's package of a program; None when the table does not know it."""
    return _debian().get(program)


def programs_of(package: str) -> tuple[str, ...]:
    """The programs a Debian package brings, as far as the table knows."""
    return tuple(program for program, brought_by in _debian().items() if brought_by == package)


# Clients whose hosts stand in no script: the import or program, then the hosts it talks to.
CLIENT_HOSTS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("api.anthropic.com",),
    "boto3": ("*.amazonaws.com",),
    "botocore": ("*.amazonaws.com",),
    "aws": ("*.amazonaws.com",),
    "cohere": ("api.cohere.com",),
    "gcloud": ("*.googleapis.com",),
    "gh": ("api.github.com", "github.com"),
    "github": ("api.github.com",),
    "google.generativeai": ("generativelanguage.googleapis.com",),
    "google.genai": ("generativelanguage.googleapis.com",),
    "googleapiclient": ("*.googleapis.com",),
    "huggingface_hub": ("huggingface.co",),
    "notion_client": ("api.notion.com",),
    "openai": ("api.openai.com",),
    "sendgrid": ("api.sendgrid.com",),
    "shodan": ("api.shodan.io",),
    "slack_sdk": ("slack.com",),
    "stripe": ("api.stripe.com",),
    "twilio": ("api.twilio.com",),
    "yfinance": ("query1.finance.yahoo.com", "query2.finance.yahoo.com"),
}
