#!/usr/bin/env bash
# Runs the main job on several machines that ssh reaches, a process on each.
#
#   bash launch/hosts.sh run --hosts=a,b,c --workdir=/shared/runs/one --config=configs/imagenet.py
#   bash launch/hosts.sh run --hosts=hosts.txt --copy --extras=gpu --workdir=gs://bucket/runs/one
#   bash launch/hosts.sh status | logs | stop --hosts=a,b,c     of the run that is under way
#
#   --hosts=LIST       names with commas between them, or a file with one a line (# comments);
#                      the first is the coordinator: the others must reach it by that name
#   --folder=DIR       where the package is on the hosts, from the home directory unless it begins
#                      with a slash (default: aninfonce_jax); one that all share, or one on each
#   --copy             copy this checkout to the folder on each host first
#   --extras=LIST      extras to install there, such as gpu (default: none; gcs is added where
#                      --workdir is on gs://)
#   --coordinator=HOST:PORT   where the processes meet (default: the first host, port 8476)
#   --name=NAME        tells runs on the same hosts apart (default: run); where one is under way,
#                      --copy under another name needs another --folder
#   --restarts=K       start again up to K times without a new checkpoint (default: 3); restarts
#                      after which the run got further are not counted
#   --poll=SECONDS     between two looks at the processes (default: 15)
#   --grace=SECONDS    for the others to end after the first that failed (default: 120)
#   --patience=SECONDS for a host that does not answer (default: 600)
#   --dry-run          print the commands and end
#   --help             this page
#
# Everything else goes to the main module, as it is. --workdir is needed, in a place that every
# host sees under the same name: all of them write checkpoints. ssh must log in without asking:
# names, users, keys and ports belong into ~/.ssh/config.
#
# Exit codes 75, 76 and 134 of the program mean that it is started again; any other ends the
# launcher with it, after the ends of the logs. Ctrl-C stops all processes, which save first. The
# processes outlive the launcher: the same command again finds them and watches on; it copies and
# installs nothing where they run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/common.sh
. launch/fleet.sh

what="" hosts="" folder=aninfonce_jax copy="" extras="" coordinator="" name=run restarts=3 dry=""
arguments=()
for word in "$@"; do
  case "$word" in
    run | status | logs | stop)
      if [ -z "$what" ]; then what="$word"; else arguments+=("$word"); fi ;;
    --hosts=*) hosts="$(value_of "$word")" ;;
    --folder=*) folder="$(value_of "$word")" ;;
    --copy) copy=1 ;;
    --extras=*) extras="$(value_of "$word")" ;;
    --coordinator=*) coordinator="$(value_of "$word")" ;;
    --name=*) name="$(value_of "$word")" ;;
    --restarts=*) restarts="$(value_of "$word")" ;;
    --poll=*) poll="$(value_of "$word")" ;;
    --grace=*) grace="$(value_of "$word")" ;;
    --patience=*) patience="$(value_of "$word")" ;;
    --dry-run) dry=1 ;;
    --help) help_of launch/hosts.sh && exit 0 ;;
    --hosts | --folder | --extras | --coordinator | --name | --restarts | --poll | --grace | --patience)
      value_of "$word" ;;
    --num_processes* | --process_id*) fail "$word is set by this launcher; leave it out" ;;
    *) arguments+=("$word") ;;
  esac
done
need "a first word" "$what" "run, status, logs or stop"
need --hosts "$hosts" "the machines, such as --hosts=a,b,c or --hosts=FILE"
whole_number --restarts "$restarts" 0
whole_number --poll "$poll" 0
whole_number --grace "$grace" 0
whole_number --patience "$patience" 0
check_name "$name"
case "$coordinator" in
  '' | ?*:[0-9]*) ;;
  *) fail "--coordinator must be HOST:PORT of the first host, got '$coordinator'" ;;
esac
check_words ${arguments[@]+"${arguments[@]}"}
check_extras --extras "$extras"
if [ -f "$hosts" ]; then
  mapfile -t all < <(sed 's/#.*//; s/[[:space:]]//g; /^$/d' "$hosts")
else
  IFS=, read -r -a all <<<"$hosts"
fi
count=${#all[@]}
[ "$count" -gt 0 ] || fail "--hosts=$hosts names no host"
for host in "${all[@]}"; do
  case "$host" in
    '' | -* | *[!A-Za-z0-9_.@-]*)
      fail "--hosts: '$host' is no name of a host (and there is no file '$hosts')" ;;
  esac
done
coordinator="${coordinator:-${all[0]#*@}:8476}"
workdir="$(workdir_in ${arguments[@]+"${arguments[@]}"})"
[ "$what" != run ] || need_workdir "$workdir"
case "$workdir" in
  '' | /* | *://*) ;;
  *) fail "--workdir must begin with a slash or name a bucket, so that it is the same on every host; got '$workdir'" ;;
esac
extras="$(with_storage "$extras" "$workdir")"
[ -n "$dry" ] || need_tool ssh "install OpenSSH's client"
[ -n "$dry" ] || [ -z "$copy" ] || need_tool scp "install OpenSSH's client"
launch="$(new_launch)"

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
ssh_options=(-o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15)

# there COMMAND...: prints the command line that runs a command in the folder on a host.
there() {
  printf 'cd %s && %s' "$(quoted "$folder")" "$(quoted "$@")"
}

# on NUMBER COMMAND-LINE: runs a command line on a host, or shows how it would.
on() {
  if [ -n "$dry" ]; then
    quoted ssh "${ssh_options[@]}" "${all[$1]}" "$2" && echo
  else
    # shellcheck disable=SC2029 # it is meant to be put together here
    ssh "${ssh_options[@]}" "${all[$1]}" "$2" </dev/null
  fi
}

worker() {
  there bash launch/worker.sh "$@"
}

# on_all FUNCTION: calls FUNCTION NUMBER for every host at once; its output is in $scratch/NUMBER,
# its exit code in $scratch/NUMBER.code.
on_all() {
  local number
  for ((number = 0; number < count; number++)); do
    if [ -n "$dry" ]; then
      "$1" "$number"
    else
      { "$1" "$number" >"$scratch/$number" 2>&1 && echo 0 || echo $?; } >"$scratch/$number.code" &
    fi
  done
  # A signal ends `wait` before the hosts have answered.
  [ -n "$dry" ] || until wait; do :; done
}

# all_must WHAT: ends with the output of the first host where the last on_all has failed.
all_must() {
  local number
  [ -z "$dry" ] || return 0
  for ((number = 0; number < count; number++)); do
    [ "$(cat "$scratch/$number.code")" = 0 ] ||
      fail "$1 failed on ${all[number]}: $(tail -n 3 "$scratch/$number" | tr '\n' ' ')" 1
  done
}

process_name() {
  echo "$name-$1"
}

# Of a name of its own: two launchers may copy at once.
archive="checkout-$launch.tar.gz"

copy_to() {
  local target="${all[$1]}"
  if [ -n "$dry" ]; then
    on "$1" "mkdir -p $(quoted "$folder")"
    quoted scp "${ssh_options[@]}" CHECKOUT.tar.gz "$target:$folder/$archive" && echo
    on "$1" "cd $(quoted "$folder") && $(unpacking "$archive")"
    return
  fi
  on "$1" "mkdir -p $(quoted "$folder")" &&
    scp -q "${ssh_options[@]}" "$scratch/checkout.tar.gz" "$target:$folder/$archive" &&
    on "$1" "cd $(quoted "$folder") && $(unpacking "$archive")"
}

install_on() {
  on "$1" "cd $(quoted "$folder") && $(alone bash launch/install.sh "--extras=$extras")"
}

answers() {
  on "$1" "test -f $(quoted "$folder/launch/worker.sh") || { echo no package in $(quoted "$folder"); exit 3; }"
}

installed=""
make_ready() {
  local number since=$SECONDS busy=()
  if [ -n "$installed" ]; then
    # After a restart: machines that went down need their time.
    while :; do
      on_all answers
      grep -qvx 0 "$scratch"/*.code || return 0
      [ $((SECONDS - since)) -lt "$patience" ] || break
      pause "$poll"
    done
    all_must "reaching the package"
  fi
  # A run that is under way keeps the code that it was started with.
  if [ -z "$dry" ]; then
    poll_fleet
    for ((number = 0; number < count; number++)); do
      [ "${states[number]}" != running ] || busy[number]=1
    done
    [ ${#busy[@]} -lt "$count" ] || { installed=1 && return; }
  fi
  if [ -n "$copy" ]; then
    [ -n "$dry" ] || pack "$scratch/checkout.tar.gz"
    # One after the other, as below: in a folder that all share they would tread on each other.
    for ((number = 0; number < count; number++)); do
      [ -z "${busy[number]:-}" ] || continue
      if [ -n "$dry" ]; then
        copy_to "$number"
      elif ! copy_to "$number" >"$scratch/copy" 2>&1; then
        fail "copying failed on ${all[number]}: $(tail -n 3 "$scratch/copy" | tr '\n' ' ')" 1
      fi
    done
  else
    on_all answers
    all_must "looking for the package (--copy brings it there, --folder names another place)"
  fi
  # One after the other: a folder that all share is set up by the first.
  for ((number = 0; number < count; number++)); do
    [ -z "${busy[number]:-}" ] || continue
    if [ -n "$dry" ]; then
      install_on "$number"
    elif ! install_on "$number" >"$scratch/install" 2>&1; then
      fail "installing failed on ${all[number]}: $(tail -n 3 "$scratch/install" | tr '\n' ' ')" 1
    fi
  done
  installed=1
}

# The first process counts the starts, for it sees the work directory.
start_one() {
  on "$1" "$(worker start "$(process_name "$1")" "$extras" "$launch" \
    python launch/again.py "--workdir=$workdir" "--restarts=$restarts" "--rank=$1" -- \
    python -m aninfonce_jax.main ${arguments[@]+"${arguments[@]}"} \
    "--coordinator=$coordinator" "--num_processes=$count" "--process_id=$1")"
}

start_fleet() {
  on_all start_one
  all_must "starting"
}

poll_one() {
  on "$1" "$(worker status "$(process_name "$1")")"
}

poll_fleet() {
  local number line
  on_all poll_one
  for ((number = 0; number < count; number++)); do
    line="$(grep -m1 "^worker .* $(process_name "$number") " "$scratch/$number" 2>/dev/null || true)"
    states[number]="${line#worker * "$(process_name "$number")" }"
  done
}

stop_one() {
  on "$1" "$(worker stop "$(process_name "$1")" "$grace")"
}

stop_fleet() {
  on_all stop_one
}

seen=0
show_log() {
  on 0 "$(worker log "$(process_name 0)" "$seen")" >"$scratch/log" 2>/dev/null || return 0
  sed "$NO_GLOO" "$scratch/log"
  seen=$((seen + $(wc -c <"$scratch/log")))
}

end_one() {
  on "$1" "$(worker end "$(process_name "$1")")"
}

show_ends() {
  local number
  on_all end_one
  [ -z "$dry" ] || return 0
  for ((number = 0; number < count; number++)); do
    echo "--- process $number on ${all[number]}: ${states[number]:-}"
    cat "$scratch/$number"
  done
}

is_gone() {
  return 1
}

case "$what" in
  run)
    if [ -n "$dry" ]; then
      make_ready
      start_fleet
      poll_fleet
      exit 0
    fi
    supervise
    ;;
  status)
    [ -z "$dry" ] || { poll_fleet && exit 0; }
    ask_fleet
    for ((number = 0; number < count; number++)); do
      echo "process $number on ${all[number]}: ${states[number]}"
    done
    ;;
  logs) show_ends ;;
  stop) stop_fleet && all_must "stopping" ;;
esac
