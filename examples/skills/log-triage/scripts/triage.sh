#!/usr/bin/env bash
# Group the lines of a log by level and message shape. Needs bash, a POSIX awk and sort.
set -euo pipefail
export LC_ALL=C # bytes: fast, and no invalid sequence can stop it

usage() {
  cat <<'TEXT'
Usage: triage.sh --input PATH [--top N] [--level LEVEL] [--grep TEXT] [--format markdown|tsv] [--output PATH]

Groups log lines by level and message shape: worst level first, then most frequent.
LEVEL is one of TRACE DEBUG INFO WARN ERROR FATAL and means "this one and worse".
TEXT
}

fail() {
  printf 'triage.sh: %s\n' "$1" >&2
  exit 2
}

input='' top=20 level='' grep_text='' format=markdown output=''
while (($#)); do
  case $1 in
    --input=* | --top=* | --level=* | --grep=* | --format=* | --output=*)
      set -- "${1%%=*}" "${1#*=}" "${@:2}"
      ;;
    --input | --top | --level | --grep | --format | --output) (($# > 1)) || fail "$1 needs a value." ;;
  esac
  case $1 in
    --input) input=$2 && shift 2 ;;
    --top) top=$2 && shift 2 ;;
    --level) level=$2 && shift 2 ;;
    --grep) grep_text=$2 && shift 2 ;;
    --format) format=$2 && shift 2 ;;
    --output) output=$2 && shift 2 ;;
    -h | --help) usage && exit 0 ;;
    -*) fail "There is no option $1. Options: --input --top --level --grep --format --output." ;;
    *)
      [[ -z $input ]] || fail "One log file at a time: got \"$input\" and \"$1\"."
      input=$1 && shift
      ;;
  esac
done

[[ -n $input ]] || fail 'Which log? Give --input PATH.'
[[ -e $input ]] || fail "There is no file \"$input\". Check the path."
[[ -f $input ]] || fail "\"$input\" is not a regular file."
[[ -r $input ]] || fail "\"$input\" may not be read."
[[ $top =~ ^[1-9][0-9]{0,5}$ ]] || fail "--top must be a number from 1 to 999999, not \"$top\"."
case $format in markdown | tsv) ;; *) fail "--format is markdown or tsv, not \"$format\"." ;; esac
level=${level^^}
case $level in
  '' | TRACE | DEBUG | INFO | WARN | ERROR | FATAL) ;;
  WARNING) level=WARN ;;
  *) fail "--level is one of TRACE DEBUG INFO WARN ERROR FATAL, not \"$level\"." ;;
esac
if [[ -n $output ]]; then
  [[ ! $output -ef $input ]] || fail '--output is the log itself, which would be overwritten. Choose another name.'
  { : >"$output"; } 2>/dev/null || fail "\"$output\" cannot be written. Try --output triage.md."
fi

# Passed by the environment: awk -v would read backslashes in them as escapes.
export TRIAGE_LEVEL=$level TRIAGE_GREP=$grep_text

# Prints one line per group: rank, count, level, first, last, shape, example; and one line "0" with the counts.
group() {
  # "$input" through standard input: awk takes an argument with "=" in it for an assignment.
  awk '
    BEGIN {
      n = split("FATAL ERROR WARN INFO DEBUG TRACE", order, " ")
      for (i = 1; i <= n; i++) rank[order[i]] = i
      n = split("WARNING=WARN ERR=ERROR SEVERE=ERROR CRITICAL=FATAL CRIT=FATAL PANIC=FATAL EMERG=FATAL ALERT=FATAL NOTICE=INFO", pairs, " ")
      for (i = 1; i <= n; i++) { split(pairs[i], p, "="); synonym[p[1]] = p[2] }
      least = ENVIRON["TRIAGE_LEVEL"] == "" ? 9 : rank[ENVIRON["TRIAGE_LEVEL"]]
      needle = ENVIRON["TRIAGE_GREP"]
      most_groups = 50000 # bounds the memory on a log where no two lines are alike
    }

    function level_of(line,    n, i, words, word) {
      if (match(line, /"?(level|severity|lvl)"?[=:] *"?[A-Za-z]+/)) {
        word = substr(line, RSTART, RLENGTH)
        sub(/^.*[^A-Za-z]/, "", word)
        word = toupper(word)
        if (word in synonym) word = synonym[word]
        if (word in rank) return word
      }
      n = split(substr(line, 1, 200), words, /[^A-Za-z]+/)
      for (i = 1; i <= n; i++) {
        word = words[i]
        if (word in synonym) word = synonym[word]
        if (word in rank) return word
      }
      return "-"
    }

    # The time stamp at the start of the line, or "".
    function time_of(line) {
      if (match(line, /^\[?[0-9][0-9][0-9][0-9][-\/][0-9][0-9][-\/][0-9][0-9][T ][0-9:]+[.,]?[0-9]*(Z|[-+][0-9:]+)?\]?/) ||
          match(line, /^[A-Z][a-z][a-z] +[0-9]+ [0-9][0-9]:[0-9][0-9]:[0-9][0-9]/) ||
          match(line, /^\[[0-9]+\/[A-Z][a-z][a-z]\/[0-9]+:[0-9:]+( [-+][0-9]+)?\]/))
        return substr(line, RSTART, RLENGTH)
      return ""
    }

    # Letters and digits in one run that are hexadecimal, long, and hold a digit: a hash or an address.
    function without_hex(text,    out, word) {
      out = ""
      while (match(text, /[0-9A-Za-z]+/)) {
        word = substr(text, RSTART, RLENGTH)
        out = out substr(text, 1, RSTART - 1)
        text = substr(text, RSTART + RLENGTH)
        if (length(word) >= 8 && word ~ /^[0-9A-Fa-f]+$/ && word ~ /[0-9]/ && word ~ /[A-Fa-f]/) word = "<hex>"
        else if (word ~ /^0x[0-9A-Fa-f]+$/ || length(word) >= 16 && word ~ /^[0-9]+$/) word = "<hex>"
        out = out word
      }
      return out text
    }

    function shape_of(text) {
      gsub(/"[^"]*"/, "<str>", text)
      gsub(/\047[^\047]*\047/, "<str>", text)
      gsub(/[0-9A-Fa-f]+-[0-9A-Fa-f]+-[0-9A-Fa-f]+-[0-9A-Fa-f]+-[0-9A-Fa-f]+/, "<uuid>", text)
      gsub(/[a-z]+:\/\/[^ ,;)\]]+/, "<url>", text)
      gsub(/[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+(:[0-9]+)?/, "<ip>", text)
      gsub(/\/[A-Za-z0-9_.@+-]+\/[A-Za-z0-9_.@+\/-]*/, "<path>", text)
      text = without_hex(text)
      gsub(/[0-9]+([.,][0-9]+)*/, "<n>", text)
      gsub(/[ \t]+/, " ", text)
      return text
    }

    {
      lines++
      sub(/\r$/, "")
      gsub(/[\001-\010\013-\037\177]/, "?")
      gsub(/\t/, " ")
      if ($0 !~ /[^ ]/) { blank++; next }
      if (needle != "" && index($0, needle) == 0) { left_out++; next }
      level = level_of($0)
      if (level == "-") none++
      place = level == "-" ? 8 : rank[level]
      if (place > least) { left_out++; next }
      when = time_of($0)
      text = substr($0, length(when) + 1, 400)
      sub(/^ +/, "", text)
      key = level SUBSEP shape_of(text)
      if (!(key in count) && groups >= most_groups) key = level SUBSEP "(more shapes than can be kept)"
      if (!(key in count)) {
        example[key] = substr(text, 1, 300)
        first[key] = when
        groups++
      }
      count[key]++
      if (when != "") { last[key] = when; if (first[key] == "") first[key] = when }
    }

    END {
      printf "0\t%d\t%d\t%d\t%d\t%d\n", lines, blank, left_out, none, groups
      for (key in count) {
        split(key, k, SUBSEP)
        place = k[1] == "-" ? 8 : rank[k[1]]
        printf "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", place, count[key], k[1],
          first[key] == "" ? "-" : first[key], last[key] == "" ? "-" : last[key], k[2], example[key]
      }
    }
  ' <"$input" | sort -t "$(printf '\t')" -k1,1n -k2,2nr -k6,6
}

render() {
  awk -F '\t' -v top="$top" -v format="$format" '
    # A code span: a placeholder like <n> must not become HTML.
    function cell(text) { gsub(/`/, "\047", text); gsub(/\|/, "\\|", text); return "`" text "`" }
    $1 == 0 { lines = $2; blank = $3; left_out = $4; none = $5; groups = $6
      if (format == "tsv") print "count\tlevel\tfirst\tlast\tshape\texample"
      else {
        print "| count | level | first | last | shape | example |"
        print "|---|---|---|---|---|---|"
      }
      next
    }
    shown < top {
      shown++
      if (format == "tsv") print $2 "\t" $3 "\t" $4 "\t" $5 "\t" $6 "\t" $7
      else printf "| %d | %s | %s | %s | %s | %s |\n", $2, $3, $4, $5, cell($6), cell($7)
    }
    END {
      if (format != "tsv") print ""
      printf "%s%d lines read, %d blank, %d left out by the options, %d without a level; %d groups, %d not shown.\n",
        format == "tsv" ? "# " : "", lines, blank, left_out, none, groups, groups - shown
    }
  '
}

if [[ -n $output ]]; then
  group | render | tee -- "$output"
else
  group | render
fi
