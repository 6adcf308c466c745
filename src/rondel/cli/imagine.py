"""`rondel imagine`: makes or edits a picture. Terminals that can show it do; otherwise it is written to a file."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path

import click

from ..charge import Scope
from ..contracts.images import COUNT_MAX, GeneratedImages, ImageRequest
from ..errors import ConfigError
from ..files.media import read_media
from ..machine.images import Images
from ..project.config import canonical_engine, make_ledger
from ..project.folder import open_store
from ..project.images import make_image_engine, make_image_engines
from ..surfaces.terminal.device import USER
from ..surfaces.terminal.pictures import picture_for, protocol_here, write_new
from ._options import a_file, as_json, flag, names_of, string
from ._output import show, show_json, tell
from ._trust import load_config


@click.command()
@click.argument("prompt", help="what the picture shows")
@string("--size", "-s", help="its width and height, such as 1024x1024")
@click.option("--out", "-o", default="", help="the file to write; -2, -3 … are added for more", shell_complete=a_file)
@string("--model", "-m", help="the image engine: provider:model", complete=lambda: names_of("engines"))
@click.option("--edit", multiple=True, help="a picture to change; several are joined", shell_complete=a_file)
@click.option("-n", "count", type=click.IntRange(1, COUNT_MAX), default=1, help="how many pictures", show_default=True)
@flag("--force", help="replace existing files")
@as_json
def imagine(
    prompt: str, size: str, out: str, model: str, edit: tuple[str, ...], count: int, force: bool, as_json: bool
) -> None:
    """Make a picture, or edit one."""
    request = ImageRequest(prompt, count, size, tuple(map(read_media, edit)))
    paths = [_numbered(Path(out), number) for number in range(1, count + 1)] if out else []
    for path in paths:  # before anything is paid for
        _check(path, force=force)
    # Asked before the picture is made, because people may type something while they wait for it.
    protocol = protocol_here() if sys.stdout.isatty() and not as_json else ""
    made = asyncio.run(_make(request, model))
    written: list[str] = []
    for number, image in enumerate(made.images):
        picture = picture_for(image.data, protocol)
        if picture is not None:
            show(picture)
        if paths or picture is None:
            written.append(
                str(_write(paths[number] if paths else Path(image.name), image.data, bool(out), force=force))
            )
    if as_json:
        usage = {"tokens_in": made.usage.tokens_in, "tokens_out": made.usage.tokens_out}
        show_json({"model": made.model, "files": written, "usage": usage})
    else:
        sys.stdout.write("".join(f"{path}\n" for path in written))


async def _make(request: ImageRequest, model: str) -> GeneratedImages:
    config = load_config()
    if model:
        name = canonical_engine(model, config.engines)
        engines = {name: make_image_engine(name, config)}
    else:
        engines = make_image_engines(config)
    async with aclosing(open_store(config)) as store:
        ledger = make_ledger(store.ledger_store, config)
        async with aclosing(ledger), aclosing(Images(engines, ledger.charge_images, config.images.defaults)) as images:
            if sys.stderr.isatty() and engines:
                tell(f"Asking {images.names[0]} …")
            return await images.make(request, Scope(person=USER.id))


def _numbered(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_stem(f"{path.stem}-{number}")


def _check(path: Path, *, force: bool) -> None:
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(f"{str(path)!r} is not a file that can be written; name one in an existing folder")
    if path.exists() and not force:
        raise ConfigError(f"{str(path)!r} already exists; choose another name, or replace it with --force")


def _write(path: Path, data: bytes, is_named: bool, *, force: bool) -> Path:
    """Write a picture. Without a name of the user's own, the first free one is taken."""
    for number in range(1, 1_000):
        free = path if is_named else _numbered(path, number)
        try:
            write_new(free, data, replace=is_named and force)
        except FileExistsError:
            if is_named:
                raise ConfigError(f"{str(path)!r} already exists; choose another name, or use --force") from None
            continue
        return free
    raise ConfigError(f"{str(path)!r} already exists, and so do 998 more; name a file with --out")
