#!/usr/bin/env bash
# Runs the main job on a Cloud TPU slice, on all of its hosts: asks for the slice, installs,
# starts, watches, asks again after a preemption, and goes on from the last checkpoint.
#
#   bash launch/tpu_vm.sh run --tpu=mine --zone=us-east5-b --type=v6e-16 --spot \
#     --workdir=gs://my-bucket/runs/one --config=configs/imagenet.py
#
#   run       create, install, start, watch; start again and re-create until the run is done
#   create    ask for the slice, or reuse it, and wait until it is there
#   install   copy this checkout to every host and install it
#   status    the state of the slice and of every process
#   logs      write the log of every host into --to=DIR (default: logs)
#   stop      ask every process to save and stop
#   delete    give the slice back: until then it costs money, whether it runs anything or not
#
#   --tpu=NAME         name of the slice and of the request for it
#   --zone=ZONE        such as us-east5-b: gcloud compute tpus locations list
#   --type=TYPE        such as v6e-16, v5litepod-16, v5p-32 (run and create)
#   --project=ID       the Google Cloud project (default: that of gcloud config)
#   --runtime=VERSION  the hosts' image (default: by type)
#   --spot             cheaper, and taken away at any time
#   --slices=N         so many slices, joined over the data centre's network (default: 1)
#   --name=NAME        tells runs on one slice apart (default: run)
#   --shared           --workdir is no bucket, but a folder that all hosts share
#   --restarts=K       start again up to K times without a new checkpoint (default: 3)
#   --wait=SECONDS     for the slice to be given (default: 86400)
#   --poll=SECONDS     between two looks (default: 60)
#   --grace=SECONDS    for the others to end after the first that failed (default: 120)
#   --patience=SECONDS for a host that does not answer (default: 600)
#   --delete           give the slice back when the run has ended, however it did
#   --to=DIR           where logs go
#   --dry-run          print the commands and end
#   --help             this page
#
# Everything else goes to the main module, as it is. --workdir must be in a bucket (gs://...): the
# disks of a slice are gone with it. Hosts read variables from ~/.aninfonce_jax.env (worker.sh).
#
# Exit codes 75, 76 and 134 of the program mean that it is started again; any other ends the
# launcher with it, after the ends of the logs. Ctrl-C stops the processes, which save first, and
# leaves the slice. The processes outlive the launcher: the same command finds them again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/common.sh
. launch/fleet.sh

what="" tpu="" zone="" type="" project="" runtime="" spot="" slices=1 name=run shared=""
restarts=3 wait=86400 delete="" to=logs dry="" poll=60
arguments=()
for word in "$@"; do
  case "$word" in
    run | create | install | status | logs | stop | delete)
      if [ -z "$what" ]; then what="$word"; else arguments+=("$word"); fi ;;
    --tpu=*) tpu="$(value_of "$word")" ;;
    --zone=*) zone="$(value_of "$word")" ;;
    --type=*) type="$(value_of "$word")" ;;
    --project=*) project="$(value_of "$word")" ;;
    --runtime=*) runtime="$(value_of "$word")" ;;
    --spot) spot=1 ;;
    --slices=*) slices="$(value_of "$word")" ;;
    --name=*) name="$(value_of "$word")" ;;
    --shared) shared=1 ;;
    --restarts=*) restarts="$(value_of "$word")" ;;
    --wait=*) wait="$(value_of "$word")" ;;
    --poll=*) poll="$(value_of "$word")" ;;
    --grace=*) grace="$(value_of "$word")" ;;
    --patience=*) patience="$(value_of "$word")" ;;
    --delete) delete=1 ;;
    --to=*) to="$(value_of "$word")" ;;
    --dry-run) dry=1 ;;
    --help) help_of launch/tpu_vm.sh && exit 0 ;;
    --tpu | --zone | --type | --project | --runtime | --slices | --name | --restarts | --wait | --poll | --grace | --patience | --to)
      value_of "$word" ;;
    --coordinator* | --num_processes* | --process_id*)
      fail "$word is found by the hosts of a slice themselves; leave it out" ;;
    *) arguments+=("$word") ;;
  esac
done
need "a first word" "$what" "run, create, install, status, logs, stop or delete"
need --tpu "$tpu" "a name for the slice, such as --tpu=mine"
need --zone "$zone" "where the slice is, such as --zone=us-east5-b"
case "$what" in
  run | create) need --type "$type" "the kind and size of the slice, such as --type=v6e-16" ;;
esac
whole_number --slices "$slices" 1
whole_number --restarts "$restarts" 0
whole_number --wait "$wait" 0
whole_number --poll "$poll" 0
whole_number --grace "$grace" 0
whole_number --patience "$patience" 0
check_name "$name"
check_words ${arguments[@]+"${arguments[@]}"}
if [ -z "$runtime" ]; then
  case "$type" in
    v6e-*) runtime=v2-alpha-tpuv6e ;;
    v5p-*) runtime=v2-alpha-tpuv5 ;;
    v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
    v2-* | v3-* | v4-*) runtime='tpu-ubuntu2204-base' ;;
    '') ;;
    *) fail "--type=$type: no --runtime is known for it; TPU7x and later are on GKE: launch/gke.sh" ;;
  esac
fi
workdir="$(workdir_in ${arguments[@]+"${arguments[@]}"})"
if [ "$what" = run ]; then
  need_workdir "$workdir"
  case "$workdir" in
    gs://*) ;;
    /*) [ -n "$shared" ] || fail "--workdir=$workdir is on the disk of a host, which is gone with the slice; use gs://BUCKET/..., or say --shared if all hosts mount it" ;;
    *) fail "--workdir must be gs://BUCKET/..., or a shared folder that begins with a slash; got '$workdir'" ;;
  esac
fi
[ -n "$dry" ] || need_tool gcloud "see cloud.google.com/sdk/docs/install"
launch="$(new_launch)"
# What the hosts install: their work directory is in a bucket.
extras=tpu,gcs
nodes=("$tpu")
if [ "$slices" -gt 1 ]; then
  nodes=()
  for ((number = 0; number < slices; number++)); do nodes+=("$tpu-$number"); done
fi

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
place=("--zone=$zone" ${project:+"--project=$project"})
# gcloud tries ten times; an answer is not waited for long each time.
ssh_flags=("--ssh-flag=-oConnectTimeout=20" "--ssh-flag=-oServerAliveInterval=15")

# tpus WORD...: calls gcloud, or shows how it would be.
tpus() {
  if [ -n "$dry" ]; then
    quoted gcloud compute tpus "$@" && echo
  else
    gcloud compute tpus "$@" </dev/null
  fi
}

# on NODE WORKER COMMAND-LINE: runs a command line on one host of a slice, or all.
on() {
  tpus tpu-vm ssh "$1" "${place[@]}" "--worker=$2" "${ssh_flags[@]}" "--command=$3"
}

# on_nodes FUNCTION: calls FUNCTION NODE for every slice at once; output in $scratch/NODE, exit
# code in $scratch/NODE.code.
on_nodes() {
  local node
  for node in "${nodes[@]}"; do
    if [ -n "$dry" ]; then
      "$1" "$node"
    else
      { "$1" "$node" >"$scratch/$node" 2>&1 && echo 0 || echo $?; } >"$scratch/$node.code" &
    fi
  done
  # A signal ends `wait` before the hosts have answered.
  [ -n "$dry" ] || until wait; do :; done
}

# nodes_must WHAT: ends with the output of the first slice where the last on_nodes has failed.
nodes_must() {
  local node
  [ -z "$dry" ] || return 0
  for node in "${nodes[@]}"; do
    [ "$(cat "$scratch/$node.code")" = 0 ] ||
      fail "$1 failed on $node: $(tail -n 5 "$scratch/$node" | tr '\n' ' ')" 1
  done
}

there() {
  printf 'cd aninfonce_jax && %s' "$(quoted "$@")"
}

# slice_state: prints the state of the request; NONE if there is none.
slice_state() {
  local said
  if said="$(tpus queued-resources describe "$tpu" "${place[@]}" "--format=value(state.state)" 2>"$scratch/error")"; then
    echo "${said:-UNKNOWN}"
  elif grep -qi 'not.found' "$scratch/error"; then
    echo NONE
  else
    # Not to be taken for an answer: the network or the login may be at fault.
    echo UNKNOWN
  fi
}

node_state() {
  tpus tpu-vm describe "$1" "${place[@]}" "--format=value(state)" 2>/dev/null || echo UNKNOWN
}

# is_gone: whether the slice was taken away. The request may say so later than its hosts.
is_gone() {
  local node
  case "$(slice_state)" in
    SUSPENDING | SUSPENDED | FAILED | DELETING | NONE) return 0 ;;
  esac
  [ "$(how_many silent)" != 0 ] || return 1
  for node in "${nodes[@]}"; do
    case "$(node_state "$node")" in
      PREEMPTED | TERMINATED | STOPPED | STOPPING | DELETING) return 0 ;;
    esac
  done
  return 1
}

request_slice() {
  local node=("--node-id=$tpu")
  [ "$slices" = 1 ] || node=("--node-count=$slices" "--node-prefix=$tpu")
  tpus queued-resources create "$tpu" "${place[@]}" "${node[@]}" "--accelerator-type=$type" \
    "--runtime-version=$runtime" ${spot:+--spot} --quiet
}

give_back() {
  tpus queued-resources delete "$tpu" "${place[@]}" --force --quiet
}

# create_slice: returns when the slice is there. `fresh` tells whether it is a new one.
create_slice() {
  local state said="" since=$SECONDS refused=0
  fresh=""
  while :; do
    state="$(slice_state)"
    if [ "$state" != "$said" ]; then
      say "slice $tpu: $state"
      said="$state"
    fi
    case "$state" in
      ACTIVE)
        case "$(node_state "${nodes[0]}")" in
          PREEMPTED | TERMINATED) give_back ;;
          *) return 0 ;;
        esac
        ;;
      NONE)
        fresh=1
        if request_slice >"$scratch/create" 2>&1; then
          continue
        elif grep -qiE 'quota|permission|denied|invalid|not enabled|billing' "$scratch/create"; then
          fail "the slice is refused: $(tail -n 3 "$scratch/create" | tr '\n' ' ')" 1
        fi
        say "the slice was not created: $(tail -n 1 "$scratch/create")"
        refused=$((refused + 1))
        ;;
      UNKNOWN)
        # What asking again does not mend; anything else may be the network.
        if grep -qiE 'credential|auth login|account|permission|denied|not enabled|billing|invalid' "$scratch/error"; then
          fail "gcloud can't be asked about slice $tpu: $(tail -n 3 "$scratch/error" | tr '\n' ' ')" 1
        fi
        [ ! -s "$scratch/error" ] || say "gcloud: $(tail -n 1 "$scratch/error")"
        ;;
      SUSPENDED | FAILED)
        # A spot slice can't be started again, and its request holds quota until it is deleted.
        if [ "$state" = FAILED ]; then
          tpus queued-resources describe "$tpu" "${place[@]}" "--format=value(state)" || true
          refused=$((refused + 1))
        fi
        give_back
        ;;
    esac
    [ "$refused" -le 3 ] || fail "the slice was refused $refused times; see above, or try another zone or type" 1
    [ $((SECONDS - since)) -lt "$wait" ] ||
      fail "slice $tpu was not there within $wait s (state $state); the request stays in the queue: delete it, or run this again" 1
    pause "$poll"
  done
}

# addresses_of NODE: fills `addresses`, one for each host of a slice.
addresses_of() {
  local said
  said="$(tpus tpu-vm describe "$1" "${place[@]}" "--format=value(networkEndpoints.ipAddress)" 2>"$scratch/error")" ||
    fail "the hosts of $1 can't be listed: $(tail -n 2 "$scratch/error" | tr '\n' ' ')" 1
  IFS=';' read -r -a addresses <<<"$said"
}

count_hosts() {
  local node
  count=0
  for node in "${nodes[@]}"; do
    addresses_of "$node"
    count=$((count + ${#addresses[@]}))
  done
}

# Of a name of its own: two launchers may copy at once.
archive="aninfonce_jax-$launch.tar.gz"

copy_to() {
  tpus tpu-vm scp "$scratch/checkout.tar.gz" "$1:$archive" "${place[@]}" --worker=all
}

install_on() {
  on "$1" all "mkdir -p aninfonce_jax && mv $archive aninfonce_jax && cd aninfonce_jax && $(unpacking "$archive") && $(alone bash launch/install.sh "--extras=$extras" --get-python)"
}

install_all() {
  [ -n "$dry" ] || pack "$scratch/checkout.tar.gz"
  on_nodes copy_to
  nodes_must "copying"
  [ -n "$dry" ] || say "installing on all hosts"
  on_nodes install_on
  nodes_must "installing"
}

installed=""
make_ready() {
  create_slice
  count_hosts
  if [ -n "$fresh" ] || [ -z "$installed" ]; then
    # A run that is under way keeps the code that it was started with.
    [ -n "$dry$fresh" ] || poll_fleet
    [ -z "$dry$fresh" ] && [ "$(how_many running)" = "$count" ] || install_all
    installed=1
    seen=0
  fi
}

start_one() {
  on "$1" all "$(there bash launch/worker.sh start "$name" "$extras" "$launch" \
    python -m aninfonce_jax.main ${arguments[@]+"${arguments[@]}"})"
}

# count_start: the first host counts, for it sees the work directory.
count_start() {
  # shellcheck disable=SC2016 # it is expanded there
  on "${nodes[0]}" 0 "$(there bash -c \
    '. launch/common.sh && . launch/environment.sh "$1" && shift && exec python launch/again.py "$@"' again "$extras" \
    "--workdir=$workdir" "--launch=$launch" "--restarts=$restarts")"
}

start_fleet() {
  poll_fleet
  # Where all run already, another launcher has started them: this one watches.
  if [ -n "$dry" ] || [ "$(how_many running)" != "$count" ]; then
    if [ -n "$dry" ]; then
      count_start
    elif ! count_start >"$scratch/count" 2>&1; then
      # What again.py says; gcloud's own lines, where the host could not be asked.
      grep '^aninfonce_jax:' "$scratch/count" >&2 || cat "$scratch/count" >&2
      exit 1
    fi
  fi
  on_nodes start_one
  nodes_must "starting"
}

poll_one() {
  on "$1" all "$(there bash launch/worker.sh status "$name")"
}

poll_fleet() {
  local node line
  on_nodes poll_one
  [ -z "$dry" ] || return 0
  states=()
  # Hosts that do not answer are missing at the end of the list, whichever they are.
  for node in "${nodes[@]}"; do
    while IFS= read -r line; do
      states+=("${line#worker * "$name" }")
    done < <(grep "^worker .* $name " "$scratch/$node" || true)
  done
}

stop_one() {
  on "$1" all "$(there bash launch/worker.sh stop "$name" "$grace")"
}

stop_fleet() {
  on_nodes stop_one
}

seen=0
show_log() {
  on "${nodes[0]}" 0 "$(there bash launch/worker.sh log "$name" "$seen")" >"$scratch/log" 2>/dev/null || return 0
  cat "$scratch/log"
  seen=$((seen + $(wc -c <"$scratch/log")))
}

end_one() {
  on "$1" all "$(there bash launch/worker.sh end "$name")"
}

show_ends() {
  local node
  on_nodes end_one
  [ -z "$dry" ] || return 0
  for node in "${nodes[@]}"; do
    echo "--- $node"
    cat "$scratch/$node"
  done
}

# fetch_logs: a file for each host.
fetch_logs() {
  local node worker
  [ -n "$dry" ] || mkdir -p "$to"
  for node in "${nodes[@]}"; do
    if [ -n "$dry" ]; then
      on "$node" 0 "$(there bash launch/worker.sh log "$name")"
      continue
    fi
    addresses_of "$node"
    for worker in "${!addresses[@]}"; do
      on "$node" "$worker" "$(there bash launch/worker.sh log "$name")" >"$to/$node-$worker.log" 2>"$scratch/error" ||
        say "no log of host $worker of $node: $(tail -n 1 "$scratch/error")" >&2
    done
  done
  [ -n "$dry" ] || say "logs: $to"
}

# at_end: the slice is given back, or it is said that it costs money.
at_end() {
  local ended=$? state
  state="$(slice_state)"
  if [ "$state" = NONE ]; then
    say "there is no slice $tpu, and none that costs money"
  elif [ -n "$delete" ]; then
    fetch_logs || true
    give_back
    say "slice $tpu is given back"
  elif [ "$state" = UNKNOWN ]; then
    say "slice $tpu may be there, and cost money; look with: bash launch/tpu_vm.sh status $(quoted "--tpu=$tpu" "${place[@]}")"
  else
    say "slice $tpu is still there, and costs money: bash launch/tpu_vm.sh delete $(quoted "--tpu=$tpu" "${place[@]}")"
  fi
  rm -rf "$scratch"
  exit "$ended"
}

case "$what" in
  run)
    if [ -n "$dry" ]; then
      tpus queued-resources describe "$tpu" "${place[@]}" "--format=value(state.state)"
      request_slice
      install_all
      start_fleet
      poll_fleet
      [ -z "$delete" ] || give_back
      exit 0
    fi
    trap at_end EXIT
    supervise
    ;;
  create)
    if [ -n "$dry" ]; then request_slice && exit 0; fi
    create_slice
    ;;
  install) install_all ;;
  status)
    if [ -n "$dry" ]; then
      tpus queued-resources describe "$tpu" "${place[@]}" "--format=value(state.state)"
      poll_fleet
      exit 0
    fi
    echo "slice $tpu: $(slice_state)"
    count_hosts
    poll_fleet
    grep -h '^worker ' "${nodes[@]/#/$scratch/}" || true
    [ "${#states[@]}" = "$count" ] || say "$((count - ${#states[@]})) of $count hosts do not answer" >&2
    ;;
  logs) fetch_logs ;;
  stop) stop_fleet && nodes_must "stopping" ;;
  delete) give_back && { [ -n "$dry" ] || say "slice $tpu is given back"; } ;;
esac
