# shellcheck shell=bash
# Sourced by launchers that run one process on each of several machines: watches, starts again,
# stops. The launcher sets `count`, the number of processes, and defines
#   make_ready    gets machines and package ready; is called before every start
#   start_fleet   starts every process
#   poll_fleet    fills states[0..count-1]: running, exited CODE, lost, absent, or silent (the
#                 machine did not answer)
#   stop_fleet    asks every process to stop, and waits
#   show_ends     prints the last lines of the logs
#   show_log      prints what is new in the log of the first process
#   is_gone       whether the machines were taken away

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  echo "aninfonce_jax: launch/fleet.sh is for the other launchers; see bash launch/local.sh --help" >&2
  exit 2
fi

poll=15 grace=120 patience=600 count=0
states=() asked="" code=0

# ask_fleet: asks for states; a process that was never started counts as lost.
ask_fleet() {
  local number
  states=()
  poll_fleet
  for ((number = 0; number < count; number++)); do
    case "${states[number]:-silent}" in
      absent) states[number]=lost ;;
      '') states[number]=silent ;;
      *) states[number]="${states[number]:-silent}" ;;
    esac
  done
}

# how_many PATTERN: prints how many processes are in a state.
how_many() {
  local state found=0
  for state in "${states[@]}"; do
    # shellcheck disable=SC2053
    [[ "$state" == $1 ]] && found=$((found + 1))
  done
  echo "$found"
}

# codes_of_states: prints an exit code for each process; of one without any, that of a lost peer.
codes_of_states() {
  local state
  for state in "${states[@]}"; do
    case "$state" in
      exited\ *) echo "${state#exited }" ;;
      *) echo 76 ;;
    esac
  done
}

# watch_fleet: returns when all processes have ended, with their combined exit code in `code`.
watch_fleet() {
  local ended_at="" silent_at="" said="" summary
  while :; do
    ask_fleet
    show_log
    if is_gone; then
      say "the machines were taken away"
      code=76
      return
    fi
    summary="$(how_many running) of $count running"
    [ "$(how_many silent)" = 0 ] || summary+=", $(how_many silent) do not answer"
    [ "$(how_many 'exited *')" = 0 ] || summary+=", $(how_many 'exited *') ended"
    [ "$(how_many lost)" = 0 ] || summary+=", $(how_many lost) lost"
    if [ "$summary" != "$said" ]; then
      say "$summary"
      said="$summary"
    fi
    # A machine that does not answer may still be at work; only where nobody else is, it is not.
    if [ "$(how_many silent)" = 0 ]; then silent_at=""; else silent_at="${silent_at:-$SECONDS}"; fi
    if [ "$(how_many running)" = 0 ]; then
      if [ -z "$silent_at" ] || [ $((SECONDS - silent_at)) -ge "$patience" ]; then break; fi
    fi
    if [ "$(how_many 'exited [1-9]*')" != 0 ] || [ "$(how_many lost)" != 0 ]; then
      ended_at="${ended_at:-$SECONDS}"
      if [ $((SECONDS - ended_at)) -ge "$grace" ]; then
        say "the others did not end within $grace s; they are stopped"
        stop_fleet
        ask_fleet
        break
      fi
    fi
    if [ -n "$asked" ]; then
      say "stopping all processes"
      stop_fleet
      ask_fleet
      show_log
      break
    fi
    pause "$poll"
  done
  # shellcheck disable=SC2046
  code="$(combined $(codes_of_states))"
}

# pause SECONDS: sleeps, but wakes for a signal.
pause() {
  sleep "$1" &
  wait $! || true
}

# supervise: gets ready, starts and watches until the run is done, has failed, or is stopped, and
# ends the launcher with the exit code of the run.
supervise() {
  while :; do
    # Until something runs there is nothing to save.
    trap 'exit 75' INT TERM
    make_ready
    trap 'asked=1' INT TERM
    start_fleet
    watch_fleet
    if [ "$code" = 0 ]; then
      say "done"
      exit 0
    fi
    if ! is_again "$code"; then
      say "ended with $code: $(meaning "$code"); the ends of the logs:" >&2
      show_ends >&2
      exit "$code"
    fi
    if [ -n "$asked" ]; then
      say "stopped with $code: $(meaning "$code"); the same command goes on"
      exit "$code"
    fi
    say "ended with $code: $(meaning "$code"); starting again"
  done
}
