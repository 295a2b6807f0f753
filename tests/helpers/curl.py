"""What the guide needs of curl, for machines that do not have it."""

import argparse
import http.client
import sys
from urllib.parse import urlsplit


def main(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", default=None)
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d", default=None)
    parser.add_argument("-w", default="")
    given = parser.parse_args(words)
    body = given.d
    if body is not None and body.startswith("@"):
        with open(body[1:]) as file:
            body = file.read()
    parts = urlsplit(given.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    method = given.X or ("GET" if body is None else "POST")
    headers = dict(header.split(": ", 1) for header in given.H)
    connection.request(method, parts.path, None if body is None else body.encode(), headers)
    answer = connection.getresponse()
    sys.stdout.write(answer.read().decode())
    sys.stdout.write(given.w.replace("%{http_code}", str(answer.status)).replace("\\n", "\n"))


if __name__ == "__main__":
    main(sys.argv[1:])
