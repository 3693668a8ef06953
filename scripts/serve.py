"""Serve a folder over HTTP on loopback, with byte ranges and CORS, until it is interrupted."""

from contextlib import suppress
from pathlib import Path

from byterefs.entry import run
from byterefs.errors import ByteRefsError
from demonstration.server import Server


def main(*, folder: Path = Path("."), port: int = 8000) -> None:
    """Serve FOLDER on 127.0.0.1, as a public archive is served: a landing page draws its map from there.

    Parameters
    ----------
    folder
        Folder to serve.
    port
        Port to listen on.
    """
    try:
        server = Server(folder, port)
    except OSError as error:
        raise ByteRefsError(
            f"127.0.0.1:{port}: cannot listen there: {error.strerror}; name another --port"
        ) from None
    print(f"{server.address}/ serves {folder.absolute()}; Ctrl-C ends it", flush=True)
    for page in sorted(folder.glob("results/*/published/index.html")):
        print(f"{server.address}/{page.parent.relative_to(folder).as_posix()}/")
    with suppress(KeyboardInterrupt), server:
        server.serve_forever()


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
