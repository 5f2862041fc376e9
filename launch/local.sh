#!/usr/bin/env bash
# Installs what is needed and runs the main job on this machine, in one process or several.
#
#   bash launch/local.sh                                        the quickstart, with its report
#   bash launch/local.sh --config=configs/synthetic.py:linear   any arguments of the main module
#   bash launch/local.sh --processes=2 --devices=2 --workdir=runs/two
#                                                               as on two hosts, each with two
#
#   --processes=N    run N processes that train together, as hosts of a cluster do, to try that
#                    out; their lines are marked [0], [1], ... (default: one, unmarked)
#   --devices=M      CPU devices in each process (default: as many as jax finds)
#   --restarts=K     start again up to K times without a new checkpoint after exit codes 75, 76
#                    and 134 (default: 0; needs --workdir)
#   --grace=SECONDS  how long the other processes may take to end after the first that failed,
#                    before they are ended (default: 120)
#   --extras=LIST    extras to install, such as gpu or tpu (default: none; gcs is added where
#                    --workdir is on gs://)
#   --dry-run        print the commands and end
#   --help           this page
#
# Everything else goes to the main module, whose own manual is
#   python -m aninfonce_jax.main --help
# Ctrl-C and SIGTERM go to every process once; a second one too. The exit code is that of the
# program; of several processes that of a failure, else 134, 76 or 75 ("start again"), else 0.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/common.sh

processes="" devices="" restarts=0 grace=120 extras="" dry=""
arguments=()
for word in "$@"; do
  case "$word" in
    --processes=*) processes="$(value_of "$word")" ;;
    --devices=*) devices="$(value_of "$word")" ;;
    --restarts=*) restarts="$(value_of "$word")" ;;
    --grace=*) grace="$(value_of "$word")" ;;
    --extras=*) extras="$(value_of "$word")" ;;
    --processes | --devices | --restarts | --grace | --extras) value_of "$word" ;;
    --dry-run) dry=1 ;;
    --help) help_of launch/local.sh && exit 0 ;;
    *) arguments+=("$word") ;;
  esac
done
[ -z "$processes" ] || whole_number --processes "$processes" 1
[ -z "$devices" ] || whole_number --devices "$devices" 1
whole_number --restarts "$restarts" 0
whole_number --grace "$grace" 0
for word in ${arguments[@]+"${arguments[@]}"}; do
  case "$word" in
    --coordinator* | --num_processes* | --process_id*)
      [ -z "$processes" ] || fail "$word is set by --processes; leave one of them out" ;;
  esac
done
check_words ${arguments[@]+"${arguments[@]}"}
check_extras --extras "$extras"
workdir="$(workdir_in ${arguments[@]+"${arguments[@]}"})"
extras="$(with_storage "$extras" "$workdir")"
if [ "$restarts" -gt 0 ]; then need_workdir "$workdir"; fi

program=(python -m aninfonce_jax.main ${arguments[@]+"${arguments[@]}"})
if [ -n "$devices" ]; then
  # The last one counts for XLA, so what was set before it stays but for the count.
  export XLA_FLAGS="${XLA_FLAGS:+$XLA_FLAGS }--xla_force_host_platform_device_count=$devices"
  export JAX_PLATFORMS="${JAX_PLATFORMS:-cpu}"
fi

# command_of NUMBER PORT: puts the command of a process into `command`.
command_of() {
  command=("${program[@]}")
  [ -z "$processes" ] ||
    command+=("--coordinator=127.0.0.1:$2" "--num_processes=$processes" "--process_id=$1")
}

if [ -n "$dry" ]; then
  echo ". launch/environment.sh $(quoted "$extras")"
  if [ -n "$devices" ]; then
    echo "export $(quoted "XLA_FLAGS=$XLA_FLAGS") $(quoted "JAX_PLATFORMS=$JAX_PLATFORMS")"
  fi
  for ((number = 0; number < ${processes:-1}; number++)); do
    command_of "$number" PORT
    quoted "${command[@]}" && echo
  done
  exit 0
fi

. launch/environment.sh "$extras"
echo "running: $(quoted "${program[@]}")"
if [ -z "$processes" ] && [ "$restarts" = 0 ]; then
  exec "${program[@]}"
fi

pids=() filters=() codes=() asked=""

# marked NUMBER: copies lines with a mark in front. It outlives the signals that end what it
# listens to, whose last lines would be lost otherwise.
marked() {
  trap '' INT TERM
  if [ -n "$processes" ]; then exec sed -u -e "$NO_GLOO" -e "s/^/[$1] /"; else exec cat; fi
}

start_all() {
  local port number out err command
  port="$(free_port)"
  pids=() filters=() codes=()
  for ((number = 0; number < ${processes:-1}; number++)); do
    command_of "$number" "$port"
    exec {out}> >(marked "$number")
    filters+=($!)
    exec {err}> >(marked "$number" >&2)
    filters+=($!)
    "${command[@]}" >&"$out" 2>&"$err" {out}>&- {err}>&- </dev/null &
    pids+=($!)
    codes+=("")
    exec {out}>&- {err}>&-
  done
}

signal_all() {
  local number
  for number in "${!pids[@]}"; do
    [ -n "${codes[number]}" ] || kill -s "$1" "${pids[number]}" 2>/dev/null || true
  done
}

# wait_for_all: fills `codes`. Once one has failed the others have --grace seconds to notice.
wait_for_all() {
  local number running since="" ended=""
  while :; do
    running=0
    for number in "${!pids[@]}"; do
      [ -n "${codes[number]}" ] && continue
      if kill -0 "${pids[number]}" 2>/dev/null; then
        running=$((running + 1))
        continue
      fi
      wait "${pids[number]}" && codes[number]=0 || codes[number]=$?
      if [ "${codes[number]}" != 0 ] && [ -n "$processes" ]; then
        say "process $number ended with ${codes[number]}: $(meaning "${codes[number]}")" >&2
        since="${since:-$SECONDS}"
      fi
    done
    [ "$running" -gt 0 ] || break
    if [ -n "$since" ] && [ $((SECONDS - since)) -gt $((grace + 10)) ]; then
      signal_all KILL
    elif [ -n "$since" ] && [ -z "$ended" ] && [ $((SECONDS - since)) -ge "$grace" ]; then
      say "$running processes still run $grace s later; they are ended" >&2
      ended=1
      signal_all TERM
    fi
    sleep 0.2
  done
  wait "${filters[@]}" || true
}

trap 'asked=1; signal_all TERM' INT TERM
launch="$(new_launch)"
while :; do
  if [ "$restarts" -gt 0 ]; then
    python launch/again.py --workdir="$workdir" --launch="$launch" --restarts="$restarts" || exit 1
  fi
  start_all
  wait_for_all
  code="$(combined "${codes[@]}")"
  if ! is_again "$code" || [ -n "$asked" ] || [ "$restarts" = 0 ]; then
    if [ -n "$processes" ] && [ "$code" != 0 ]; then
      if is_again "$code"; then
        say "ended with $code: $(meaning "$code"); the same command goes on" >&2
      else
        say "ended with $code: $(meaning "$code")" >&2
      fi
    fi
    exit "$code"
  fi
  say "ended with $code: $(meaning "$code"); starting again" >&2
done
