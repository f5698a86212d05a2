"""Answers the calls of Docker's API that the tests of aio-pika make, for a container that is there already: the broker.

docker.py SOCKET AMQP_PORT AMQPS_PORT
"""

import http.server
import json
import socketserver
import sys

SOCKET, AMQP, AMQPS = sys.argv[1:]
PORTS = {"5672/tcp": [{"HostPort": AMQP}], "5671/tcp": [{"HostPort": AMQPS}]}


class Docker(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/containers/create"):
            self.answer(201, json.dumps({"Id": "broker"}).encode())
        else:
            self.answer(200)

    def do_GET(self):
        self.answer(200, json.dumps({"NetworkSettings": {"Ports": PORTS}}).encode())

    def do_DELETE(self):
        self.answer(200)

    def log_message(self, *_):
        pass


with socketserver.ThreadingUnixStreamServer(SOCKET, Docker) as server:
    server.serve_forever()
