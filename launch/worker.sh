#!/usr/bin/env bash
# One process of a run on a machine that a launcher reaches over ssh: starts it so that it
# outlives the connection, and says how it is. Called by hosts.sh and tpu_vm.sh; also by hand.
#
#   bash launch/worker.sh start NAME EXTRAS LAUNCH COMMAND...
#                                        set up .venv, run the command in the background; it
#                                        finds LAUNCH in ANINFONCE_LAUNCH (see again.py)
#   bash launch/worker.sh status NAME    one line: running, exited CODE, lost, or absent
#   bash launch/worker.sh log NAME [FROM]                the log, from byte FROM on
#   bash launch/worker.sh end NAME                       the last 20 lines of the log
#   bash launch/worker.sh stop NAME [SECONDS]            SIGTERM; SIGKILL after SECONDS (120)
#   bash launch/worker.sh --help                         this page
#
# Log, exit code and lock are in /tmp/aninfonce_jax-USER/NAME, on a disk of the machine's own:
# NAME tells the processes on one machine apart. Variables in ~/.aninfonce_jax.env (NAME=VALUE, a
# line each, for the owner alone to read) are given to the run: the place for a key or a token,
# which has no place on a command line. --dry-run as the first word prints and does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/common.sh

dry=""
if [ "${1:-}" = --dry-run ]; then
  dry=1
  shift
fi
case "${1:-}" in
  --help) help_of launch/worker.sh && exit 0 ;;
  start | run | status | log | end | stop) ;;
  *) fail "the first word is start, status, log, end or stop; got '${1:-}'; see --help" ;;
esac
what="$1" process="${2:-}"
case "$process" in
  '' | */* | .*) fail "NAME is a word without slashes that does not begin with a dot; got '$process'" ;;
esac
base="${TMPDIR:-/tmp}/aninfonce_jax-$(id -un)"
folder="$base/$process"
if [ -n "$dry" ]; then
  quoted "$@" && echo
  exit 0
fi

is_running() {
  [ -e "$folder/lock" ] && ! flock --nonblock "$folder/lock" true
}

state() {
  if [ ! -d "$folder" ]; then
    echo absent
  elif is_running; then
    echo running
  elif [ -s "$folder/exit_code" ]; then
    echo "exited $(cat "$folder/exit_code")"
  else
    echo lost
  fi
}

start() {
  local extras="$1" launch="$2"
  shift 2
  (umask 077 && mkdir -p "$folder")
  [ -O "$base" ] || fail "$base belongs to somebody else; set TMPDIR to a folder of your own" 1
  # The lock is inherited by the run, and released by the kernel however the run ends.
  exec 9>>"$folder/lock"
  if ! flock --nonblock 9; then
    [ "$(quoted "$@")" = "$(cat "$folder/command")" ] ||
      fail "another run is under way as $process: $(cat "$folder/command"); stop it first" 1
    say "already running"
    return
  fi
  quoted "$@" >"$folder/command"
  rm -f "$folder/exit_code" "$folder/pid"
  ANINFONCE_LAUNCH="$launch" setsid nohup bash launch/worker.sh run "$process" "$extras" "$@" >>"$folder/log" 2>&1 </dev/null &
  echo $! >"$folder/pid"
  say "started"
}

child=""
ended() {
  local code=$?
  echo "$code" >"$folder/exit_code.new"
  mv "$folder/exit_code.new" "$folder/exit_code"
}

run() {
  local extras="$1" code=0
  shift
  trap ended EXIT
  # While packages are installed there is nothing to save.
  trap 'exit 75' TERM
  if [ -e "$HOME/.aninfonce_jax.env" ]; then
    set -a
    # shellcheck disable=SC1091
    . "$HOME/.aninfonce_jax.env"
    set +a
  fi
  . launch/environment.sh "$extras"
  "$@" &
  child=$!
  trap 'kill -s TERM "$child"' TERM
  wait "$child" || code=$?
  # A signal ends `wait`, not the run.
  while kill -0 "$child" 2>/dev/null; do
    wait "$child" || true
  done
  wait "$child" && code=0 || code=$?
  return "$code"
}

stop() {
  local patience="${1:-120}" until
  is_running || return 0
  kill -s TERM "$(cat "$folder/pid")" 2>/dev/null || true
  until=$((SECONDS + patience))
  while is_running; do
    if [ "$SECONDS" -ge "$until" ]; then
      # The whole session: what the run has started itself, too.
      pkill -KILL --session "$(cat "$folder/pid")" || true
      echo 137 >"$folder/exit_code"
      say "killed after $patience s"
      return
    fi
    sleep 0.2
  done
}

case "$what" in
  start)
    [ $# -ge 5 ] || fail "start needs NAME, EXTRAS ('' for none), LAUNCH and a command; see --help"
    start "${@:3}"
    ;;
  run) run "${@:3}" ;;
  status) echo "worker $(hostname) $process $(state)" ;;
  log) [ ! -e "$folder/log" ] || tail --bytes="+$((${3:-0} + 1))" "$folder/log" ;;
  end) [ ! -e "$folder/log" ] || tail --lines=20 "$folder/log" ;;
  stop) stop "${3:-120}" ;;
esac
