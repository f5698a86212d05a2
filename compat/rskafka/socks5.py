"""A SOCKS5 proxy (RFC 1928) on a free port of the loopback, for the tests that connect through one: CONNECT without a login.

It says its port on a line of its own, and ends with its standard input.
"""

import asyncio
import ipaddress
import sys

VERSION = 5
NO_LOGIN = 0
CONNECT = 1
IPV4, NAME, IPV6 = 1, 3, 4
BLOCK_BYTES = 64 << 10


async def relay(reader, writer):
    while block := await reader.read(BLOCK_BYTES):
        writer.write(block)
        await writer.drain()
    writer.close()


async def target(reader):
    """Where a client wants to be connected to."""
    version, command, _, kind = await reader.readexactly(4)
    if (version, command) != (VERSION, CONNECT):
        raise ValueError(f"version {version}, command {command}: only {VERSION} and {CONNECT} (CONNECT) are spoken")
    if kind == NAME:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("ascii")
    elif kind in (IPV4, IPV6):
        host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == IPV4 else 16)))
    else:
        raise ValueError(f"address type {kind} is none")
    return host, int.from_bytes(await reader.readexactly(2))


async def serve(reader, writer):
    try:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(bytes([VERSION, NO_LOGIN]))
        remote_reader, remote_writer = await asyncio.open_connection(*await target(reader))
        writer.write(bytes([VERSION, 0, 0, IPV4]) + bytes(6))
        await asyncio.gather(relay(reader, remote_writer), relay(remote_reader, writer))
    except (OSError, EOFError, ValueError) as error:
        print(f"socks5: {error}", file=sys.stderr)
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
