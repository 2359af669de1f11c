"""One signed S3 request with the standard library alone: `s3_request.py ENDPOINT METHOD PATH [QUERY [BODY]]`.

For what obstore has no call for: to make a bucket, to list uploads that are not complete.
"""

from __future__ import annotations

import hashlib
import hmac
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime

KEY, SECRET, REGION = "testing", "testing", "us-east-1"
SIGNED = "host;x-amz-content-sha256;x-amz-date"


def request(endpoint: str, method: str, path: str, query: str = "", body: str = "") -> str:
    """What the server answers. Raises: urllib.error.HTTPError."""
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    data = body.encode()
    digest = hashlib.sha256(data).hexdigest()
    host, scope = endpoint.partition("//")[2], f"{time[:8]}/{REGION}/s3/aws4_request"
    headers = f"host:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{time}\n"
    canonical = "\n".join((method, path, query, headers, SIGNED, digest))
    text = "\n".join(("AWS4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    url = f"{endpoint}{path}" + (f"?{query}" if query else "")
    asked = urllib.request.Request(url, data or None, method=method)
    asked.add_header("x-amz-date", time)
    asked.add_header("x-amz-content-sha256", digest)
    credential = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}"
    asked.add_header("Authorization", f"{credential}, SignedHeaders={SIGNED}, Signature={signature}")
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return answer.read().decode()


if __name__ == "__main__":
    try:
        print(request(*sys.argv[1:]))
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it is there already
            raise
