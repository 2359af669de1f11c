# shellcheck shell=bash
# Shared by the scripts in this folder, each of which starts one real service for tests:
#
#     NAME.sh start FOLDER     start it unless it runs; print NAME=value lines for `eval`
#     NAME.sh stop FOLDER      end what was started there, and nothing else
#     NAME.sh status FOLDER    exit 0 while it runs
#
# A service listens on loopback only, keeps all it writes in FOLDER, and installs its Debian package
# where that is missing and the caller is root. Errors go to stderr, the service's own log to FOLDER/log.

set -euo pipefail

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

born() { # PID: when that process began, in ticks; empty where there is none (or only a zombie)
    local stat
    stat="$(cat "/proc/$1/stat" 2>/dev/null)" || return 0
    stat="${stat##*) }" # the name before it may hold blanks
    [[ "$stat" == Z* ]] || cut -d' ' -f20 <<<"$stat"
}

alive() { # the very process that was started here runs: a number alone may have been used again
    local pid began
    [[ -s "$FOLDER/pid" ]] && read -r pid began <"$FOLDER/pid" && [[ -n "$began" && "$(born "$pid")" == "$began" ]]
}

packaged() { # COMMAND PACKAGE
    command -v "$1" >/dev/null && return
    ((EUID == 0)) && command -v apt-get >/dev/null || fail "needs $1: install the package $2"
    {
        apt-get -qq update
        # a package may start a service of its own on the usual port: not here
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
            apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends "$2"
    } </dev/null >>"$FOLDER/log" 2>&1 || fail "could not install $2: see $FOLDER/log"
}

port() { # a loopback port that is free now
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

launch() { # COMMAND…: in a session of its own, so that the caller's signals do not reach it
    setsid "$@" </dev/null >>"$FOLDER/log" 2>&1 &
    printf '%s %s\n' "$!" "$(born "$!")" >"$FOLDER/pid"
}

await() { # COMMAND…: until it succeeds, for at most 10 s
    local left
    for ((left = 200; left > 0; left--)); do
        if "$@" >/dev/null 2>&1; then
            return
        fi
        alive || fail "it ended at once: see $FOLDER/log"
        sleep 0.05
    done
    halt
    fail "it does not answer: see $FOLDER/log"
}

halt() {
    local pid left
    if alive; then
        read -r pid _ <"$FOLDER/pid"
        kill "-${SIGNAL:-TERM}" "$pid"
        for ((left = 200; left > 0; left--)); do
            alive || break
            sleep 0.05
        done
        if alive; then kill -KILL "$pid"; fi
    fi
    rm -f "$FOLDER/pid" "$FOLDER/values"
}

service() { # ACTION FOLDER: what every script ends with; it brings a function `begin`
    [[ $# == 2 ]] || fail "usage: ${0##*/} start|stop|status FOLDER"
    mkdir -p "$2"
    FOLDER="$(cd "$2" && pwd -P)"
    case "$1" in
    start)
        alive || { halt && begin >"$FOLDER/values.new" && mv "$FOLDER/values.new" "$FOLDER/values"; }
        cat "$FOLDER/values"
        ;;
    stop) halt ;;
    status) alive ;;
    *) fail "$1: start, stop or status" ;;
    esac
}
