#!/usr/bin/env bash
# Runs the main job on GKE, on TPUs or GPUs, as a JobSet, which starts itself again.
#
#   bash launch/gke.sh submit --name=one --image=IMAGE --tpu=v6e --topology=4x4 --spot \
#     --workdir=gs://bucket/runs/one --config=configs/imagenet.py
#   bash launch/gke.sh submit --name=one --image=IMAGE --gpu=nvidia-h100-80gb --nodes=4 \
#     --workdir=gs://bucket/runs/one --config=configs/imagenet.py
#
#   submit    render the manifest and hand it to kubectl
#   render    print the manifest
#   watch     follow the state until the run is done (exit code 0) or has failed (1)
#   status    the state of the JobSet and of its pods
#   logs      the end of the log of the first pod
#   delete    remove the JobSet and its pods; a node pool costs money for as long as it has nodes
#
#   --name=NAME            name of the JobSet
#   --namespace=NAME       (default: default)
#   --poll=SECONDS         between two looks of watch (default: 30)
#   --dry-run              print the commands and end
#   --help                 this page
#
# More flags of submit and render, with their meaning: python launch/gke/render.py --help
# Everything else goes to the main module. jinja2 is needed here, and in the cluster JobSet 0.6 or
# newer. Keys and tokens belong into a Kubernetes secret, which --secret=NAME gives to the pods.
#
# Exit codes 75, 76 and 134 of the program, and nodes that are taken away, restart the JobSet; any
# other exit code ends it, and so do --restarts restarts without a new checkpoint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/common.sh

what="" name="" namespace=default poll=30 dry=""
arguments=()
for word in "$@"; do
  case "$word" in
    submit | render | watch | status | logs | delete)
      if [ -z "$what" ]; then what="$word"; else arguments+=("$word"); fi ;;
    --poll=*) poll="$(value_of "$word")" ;;
    --dry-run) dry=1 ;;
    --help) help_of launch/gke.sh && exit 0 ;;
    --name | --namespace | --poll) value_of "$word" ;;
    --name=*) name="$(value_of "$word")" && arguments+=("$word") ;;
    --namespace=*) namespace="$(value_of "$word")" && arguments+=("$word") ;;
    *) arguments+=("$word") ;;
  esac
done
need "a first word" "$what" "submit, render, watch, status, logs or delete"
need --name "$name" "the name of the JobSet, such as --name=one"
whole_number --poll "$poll" 0

case "$what" in
  submit | render) ;;
  *)
    for word in "${arguments[@]}"; do
      case "$word" in
        --name=* | --namespace=*) ;;
        *) fail "$what takes --name, --namespace and --poll; got '$word'; see --help" ;;
      esac
    done
    ;;
esac
[ -n "$dry" ] || [ "$what" = render ] || need_tool kubectl "see kubernetes.io/docs/tasks/tools"
place=("--namespace=$namespace")
pods=("--selector=jobset.sigs.k8s.io/jobset-name=$name")
first=("--selector=jobset.sigs.k8s.io/jobset-name=$name,jobset.sigs.k8s.io/job-index=0,batch.kubernetes.io/job-completion-index=0")

# kube WORD...: calls kubectl, or shows how it would be.
kube() {
  if [ -n "$dry" ]; then
    quoted kubectl "$@" && echo
  else
    kubectl "$@"
  fi
}

render() {
  "${PYTHON:-python3}" launch/gke/render.py "${arguments[@]}"
}

show_end() {
  kube logs "${place[@]}" "${first[@]}" --tail=20 || true
}

# state: prints Completed, Failed, or how often the JobSet was restarted.
state() {
  kubectl get jobset "$name" "${place[@]}" \
    --output='jsonpath={.status.terminalState}{" "}{.status.restarts}'
}

watch_run() {
  local said="" now silent=0
  while :; do
    if now="$(state 2>&1)"; then
      silent=0
    else
      silent=$((silent + 1))
      [ "$silent" -lt 10 ] || fail "kubectl does not answer: $now" 1
      case "$now" in
        *NotFound* | *"not found"*) fail "there is no JobSet $name in namespace $namespace" 1 ;;
      esac
      now="no answer"
    fi
    if [ "$now" != "$said" ]; then
      say "JobSet $name: ${now/#[[:space:]]/running, restarts: }"
      said="$now"
    fi
    case "$now" in
      Completed*) return 0 ;;
      Failed*)
        say "JobSet $name has failed; the end of its log:" >&2
        show_end >&2
        return 1
        ;;
    esac
    sleep "$poll"
  done
}

case "$what" in
  render) render ;;
  submit)
    manifest="$(render)"
    if [ -n "$dry" ]; then
      echo "kubectl apply --filename=- <<'END'"
      printf '%s\nEND\n' "$manifest"
      exit 0
    fi
    printf '%s\n' "$manifest" | kubectl apply --filename=-
    say "submitted; bash launch/gke.sh watch $(quoted "--name=$name" "--namespace=$namespace")"
    ;;
  watch)
    if [ -n "$dry" ]; then kube get jobset "$name" "${place[@]}" && exit 0; fi
    watch_run
    ;;
  status)
    kube get jobset "$name" "${place[@]}"
    kube get pods "${place[@]}" "${pods[@]}" --output=wide
    ;;
  logs) show_end ;;
  delete) kube delete jobset "$name" "${place[@]}" ;;
esac
