#!/usr/bin/env bash
# A Redis that forgets everything when it ends: redis.sh start|stop|status FOLDER. Prints REDIS_URL.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

begin() {
    local number
    packaged redis-server redis-server
    number="${REDIS_PORT:-$(port)}"
    launch redis-server --bind 127.0.0.1 --port "$number" --dir "$FOLDER" --save '' --appendonly no
    await redis-cli -h 127.0.0.1 -p "$number" ping
    echo "REDIS_URL=redis://127.0.0.1:$number/0"
}

service "$@"
