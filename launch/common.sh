# shellcheck shell=bash
# Sourced by every launcher: how they speak, what an exit code means, and how they start again.

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  echo "aninfonce_jax: launch/common.sh is for the other launchers; see bash launch/local.sh --help" >&2
  exit 2
fi

# Codes of the program after which the same command goes on: 75 it was asked to stop and has
# saved, 76 it lost a peer, 134 the runtime of jax aborted (it does so when a peer hangs).
AGAIN="75 76 134"

# For sed: leaves out the lines in which jax's CPU runtime counts its connections.
# shellcheck disable=SC2034
NO_GLOO='/^\[Gloo\] Rank [0-9]* is connected to /d'

say() {
  echo "aninfonce_jax: $*"
}

# fail MESSAGE [CODE]: one line on stderr, and the end.
fail() {
  echo "aninfonce_jax: $1" >&2
  exit "${2:-2}"
}

# help_of FILE: prints the comment at the head of a launcher, which is its manual.
help_of() {
  awk 'NR == 1 { next } /^#SBATCH/ { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$1"
}

# value_of --flag=VALUE: prints VALUE; a flag without one is refused.
value_of() {
  case "$1" in
    *=?*) printf '%s' "${1#*=}" ;;
    *) fail "${1%%=*} needs a value: ${1%%=*}=VALUE; see --help" ;;
  esac
}

# need NAME VALUE MEANING: refuses an empty value.
need() {
  [ -n "$2" ] || fail "$1 is needed: $3; see --help"
}

# need_tool NAME WHERE: refuses to begin without a program that is called later.
need_tool() {
  command -v "$1" >/dev/null || fail "$1 is not installed here: $2"
}

# with_storage EXTRAS WORKDIR: prints the extras, with the one that a work directory on gs:// needs.
with_storage() {
  case "$2:,$1," in
    *,gcs,*) printf '%s' "$1" ;;
    gs://*) printf '%s' "${1:+$1,}gcs" ;;
    *) printf '%s' "$1" ;;
  esac
}

# check_extras FLAG LIST: refuses extras that setup.cfg does not have, before pip passes over them.
check_extras() {
  local extra known
  known="$(awk '/^\[/ { inside = ($0 == "[options.extras_require]") }
    inside && /^[a-z0-9-]+ *=/ { printf "%s%s", comma, $1; comma = ", " }' setup.cfg)"
  for extra in ${2//,/ }; do
    case ", $known, " in
      *", $extra, "*) ;;
      *) fail "$1: there is no extra '$extra'; there are $known" ;;
    esac
  done
}

# check_words WORD...: refuses what is no argument of the main module, before machines are asked
# for. Keys of a config are left to the program, which knows them.
check_words() {
  local word flag takes="" known
  [ "${1:-}" != embed ] || return 0
  known=$'\n'"$(<launch/program_flags.txt)"$'\n'
  for word in "$@"; do
    flag="${word%%=*}"
    case "$word" in
      --config.*) ;;
      [!-]* | -[0-9.]* | '') [ -n "$takes" ] || fail "unexpected argument '$word'; see --help" ;;
      *)
        case "$known" in
          *$'\n'"$flag"$'\n'*) ;;
          *) fail "unknown flag '$flag': neither this launcher nor the program has it; see --help" ;;
        esac
        ;;
    esac
    # A flag without "=" may have its value in the next word.
    case "$word" in
      --*=* | [!-]* | -[0-9.]* | '') takes="" ;;
      *) takes=1 ;;
    esac
  done
}

# whole_number FLAG VALUE LEAST: refuses what is no number, or less.
whole_number() {
  case "$2" in
    '' | *[!0-9]* | ??????????*) fail "$1 takes a whole number, got '$2'" ;;
  esac
  # A leading zero would make it octal.
  [ "$((10#$2))" -ge "$3" ] || fail "$1 takes a whole number of at least $3, got '$2'"
}

# check_name NAME: refuses what is no name for a folder on a host, before machines are asked for.
check_name() {
  case "$1" in
    [-.]* | *[!A-Za-z0-9_.-]*) fail "--name takes letters, digits, '_', '-' and '.', of which the last two can't be first; got '$1'" ;;
  esac
}

# quoted WORD...: prints a command so that a shell reads the same words again.
quoted() {
  local word text=""
  for word in "$@"; do
    case "$word" in
      '' | *[!A-Za-z0-9_./:=@%^,+-]*) text+=" '${word//\'/\'\\\'\'}'" ;;
      *) text+=" $word" ;;
    esac
  done
  printf '%s' "${text# }"
}

# workdir_in ARGUMENT...: prints the work directory that the program's arguments name, or nothing.
workdir_in() {
  local word last="" next=""
  for word in "$@"; do
    if [ -n "$next" ]; then
      last="$word" next=""
    elif [ "$word" = --workdir ]; then
      next=1
    elif [ "${word#--workdir=}" != "$word" ]; then
      last="${word#--workdir=}"
    fi
  done
  printf '%s' "$last"
}

# need_workdir WORKDIR: a run that is started again finds its checkpoints by it.
need_workdir() {
  need --workdir "$1" "without a folder of its own a run that is started again would begin anew"
  # The program would refuse it, but only when machines are there.
  case "$1" in
    gs:// | gs:///*) fail "--workdir must be gs://BUCKET/..., got '$1'" ;;
    gs://*) ;;
    *://*) fail "--workdir=$1: of remote folders only gs:// can be used; mount this one as a folder, and name that" ;;
  esac
}

is_again() {
  case " $AGAIN " in
    *" $1 "*) return 0 ;;
    *) return 1 ;;
  esac
}

# combined CODE...: prints one exit code for the codes of all processes of a run. A failure counts
# most. A process that was killed (code above 128) counts as a lost peer where the others say so
# themselves: an out-of-memory killer or a machine that goes down leaves no other trace.
combined() {
  local code found=0 heard=""
  for code in "$@"; do
    is_again "$code" && heard=1
  done
  for code in "$@"; do
    [ "$code" = 0 ] && continue
    if ! is_again "$code"; then
      if [ -z "$heard" ] || [ "$code" -le 128 ]; then
        echo "$code"
        return
      fi
      code=76
    fi
    # Of several kinds of "again" the worst is shown: aborted, a peer lost, saved.
    [ "$code" -gt "$found" ] && found="$code"
  done
  echo "$found"
}

# meaning CODE: a few words on an exit code.
meaning() {
  case "$1" in
    0) echo "done" ;;
    2) echo "the command, the config or the work directory is wrong" ;;
    75) echo "asked to stop; the state is saved" ;;
    76) echo "a peer was lost" ;;
    134) echo "aborted by the runtime, as it does when a peer hangs" ;;
    137) echo "killed, by an operator or for want of memory" ;;
    *) echo "failed" ;;
  esac
}

# free_port: prints a port that nobody listens at.
free_port() {
  "${PYTHON:-python3}" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
}

# new_launch: prints a name that no other launch has.
new_launch() {
  echo "$(hostname)-$(date +%Y%m%d-%H%M%S)-$$"
}

# pack FILE: writes the files of this checkout, without what git ignores, into FILE (tar.gz).
pack() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    # Files that are deleted but not yet committed as such are still listed.
    git ls-files -z --cached --others --exclude-standard |
      while IFS= read -r -d '' name; do [ -e "$name" ] && printf '%s\0' "$name"; done |
      tar --null --files-from=- -czf "$1"
  else
    tar --exclude=./.venv* --exclude=./runs --exclude=./build -czf "$1" .
  fi || fail "this checkout can't be packed into $1" 1
}

# unpacking ARCHIVE: prints the command line that unpacks an archive in the folder where it lies,
# and removes it. Other launchers may be at work there: one unpacks or installs at a time, and
# whatever reads a file meanwhile finds the old one or the new one, never a part.
unpacking() {
  # shellcheck disable=SC2016 # it is expanded there; $0 is the archive
  alone sh -c 'mkdir ".$0.new" && tar -xzf "$0" -C ".$0.new" && cd ".$0.new" && find . -type d -exec mkdir -p ../{} \; -o -exec mv -f {} ../{} \; && cd .. && rm -rf "$0" ".$0.new"' "$1"
}

# alone COMMAND...: prints the command line that waits until no other launcher unpacks or installs.
alone() {
  quoted flock .launching "$@"
}

# read_test_words FILE WORD...: what test.sh and test_oldest.sh are called with; `words` go to pytest.
read_test_words() {
  local file="$1" word
  shift
  words=() dry=""
  for word in "$@"; do
    case "$word" in
      --dry-run) dry=1 ;;
      --help) help_of "$file" && exit 0 ;;
      *) words+=("$word") ;;
    esac
  done
}

# checked COMMAND...: says and runs a command, or prints it only.
checked() {
  if [ -n "$dry" ]; then
    quoted "$@" && echo
  else
    echo "running: $(quoted "$@")"
    "$@"
  fi
}
