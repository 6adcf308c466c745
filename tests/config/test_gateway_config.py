"""`[gateway]` in rondel.toml: read, checked, explained without a secret, and taken up while it is in use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rondel.errors import ConfigError
from rondel.gateway.server.reload import PERIOD_S, Reloader
from rondel.project.config import explain, load, refuse_exposed
from rondel.project.settings import BudgetSettings, Config, GatewaySettings, MainRouteSettings
from rondel.testing import VirtualClock

from .files import sentence, write

FULL = """
engine = "echo"
[engines.work]
base_url = "http://127.0.0.1:9/v1"
models = ["a", "b"]
transform = ["cleancache", ["customparams", {api_key = "hunter2"}]]
[gateway]
host = "0.0.0.0"
port = 9999
body_mb_max = 10
ping_s = 0
hosts = ["models.example"]
origins = ["https://chat.example"]
plugins = ["log", {name = "trim", share = 0.25}]
[gateway.routes]
default = "work"
background = "work/b"
think = "Work,a"
long_context = "default"
web_search = ""
long_context_tokens = 50000
background_models = ["*mini*"]
custom = "json:loads"
custom_s = 1
[gateway.fallback]
default = ["echo", "work:b"]
[gateway.keys.alice]
key = "${ALICE}"
expires = 2031-01-31
models = ["work:*"]
budget = {tokens = 1000, money = 2.5, window = "day", mode = "warn"}
[gateway.keys.bob]
key = "hunter2"
expires = 2031-01-31T12:00:00Z
[gateway.projects.shop]
think = "echo"
folder = "/srv/shop"
[gateway.sessions.abc-1]
default = "echo"
"""


def loaded(tmp_path: Path, text: str = FULL, mode: int = 0o600, **env: str) -> Config:
    write(tmp_path / "rondel.toml", text, mode)
    return load(tmp_path, {"HOME": str(tmp_path), "ALICE": "hunter2-a", **env})


def test_a_whole_gateway_is_read(tmp_path: Path):
    """C01: in Rondel's form, TOML; C02: variables are expanded everywhere in the file."""
    gateway = loaded(tmp_path).gateway
    assert (gateway.host, gateway.port, gateway.body_mb_max, gateway.ping_s) == ("0.0.0.0", 9999, 10.0, 0.0)
    assert (gateway.hosts, gateway.origins) == (("models.example",), ("https://chat.example",))
    assert [plugin.name for plugin in gateway.plugins] == ["log", "trim"]
    assert (gateway.routes.default, gateway.routes.think, gateway.routes.web_search) == ("work", "Work,a", "")
    assert (gateway.routes.long_context_tokens, gateway.routes.image) == (50_000, None)
    assert gateway.fallback.default == ("echo", "work:b")
    alice, bob = gateway.keys["alice"], gateway.keys["bob"]
    assert (alice.key, alice.expires, alice.models) == ("hunter2-a", "2031-01-31", ("work:*",))
    assert alice.budget == BudgetSettings(1_000, 2.5, "day", "warn")
    assert bob.expires == "2031-01-31T12:00:00+00:00"
    assert gateway.projects["shop"].think == "echo"
    assert gateway.sessions["abc-1"].default == "echo"


def test_without_a_table_there_are_the_defaults(tmp_path: Path):
    """C01: a missing file is no error, and none is written."""
    config = load(tmp_path, {"HOME": str(tmp_path)})
    assert config.gateway == GatewaySettings()
    assert (config.gateway.host, config.gateway.port) == ("127.0.0.1", 8484)
    routes = config.gateway.routes
    assert (routes.long_context_tokens, routes.background_models) == (60_000, ("*claude*haiku*",))
    assert list(tmp_path.iterdir()) == []


def test_variables_stand_for_routes_ports_and_days_too(tmp_path: Path):
    """C02: `${any}` in every text of the whole file, however deep, in any case of letters; once, so that a value that
    looks like a variable is data; and never written back, be it at the start or when the file is read again.

    Where the row keeps a missing one as it is, Rondel tells it with its line: kept, it would be sent to a server as if
    it were the key.
    """
    text = """
    [engines.deep]
    base_url = "http://127.0.0.1:9/${path}"
    headers = {X-One = "a ${ALICE} b", X-Two = "${path}${path}"}
    body = {outer = [{inner = ["${ALICE}"]}]}
    [gateway]
    port = "${PORT}"
    routes = {default = "${ROUTE:-echo}", background_models = ["${ROUTE:-x}*"]}
    keys.a = {key = "${ALICE}", expires = "${DAY}"}
    """
    env = {"PORT": "81", "DAY": "2030-02-01", "path": "v1", "ALICE": "${DAY}-secret"}
    config = loaded(tmp_path, text, **env)
    engine, gateway = config.engines["deep"], config.gateway
    assert engine.base_url == "http://127.0.0.1:9/v1"
    assert engine.headers == {"X-One": "a ${DAY}-secret b", "X-Two": "v1v1"}
    assert engine.body == {"outer": [{"inner": ["${DAY}-secret"]}]}
    assert (gateway.port, gateway.routes.default, gateway.keys["a"].expires) == (81, "echo", "2030-02-01")
    assert (gateway.routes.background_models, gateway.keys["a"].key) == (("x*",), "${DAY}-secret")
    file = tmp_path / "rondel.toml"
    before = file.read_bytes(), file.stat().st_mtime_ns
    reloader = Reloader(config, {"HOME": str(tmp_path), **env})
    assert reloader.look(again=True) is None
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert [path.name for path in tmp_path.iterdir()] == ["rondel.toml"]
    unset = ('[gateway]\nroutes.default = "${ROUTE}"', '[engines.x]\nbody = {a = [{b = "${ROUTE}"}]}')
    said = [sentence(partial(loaded, tmp_path, text)) for text in unset]
    assert all(text.startswith("rondel.toml:2: the variable ROUTE is not set") for text in said), said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gateway]\nprot = 1", "2: 'gateway.prot' is not known; did you mean 'port'?"),
        ("[gateway]\nport = 99999", "2: 'gateway.port' is 99999; it must be from 0 to 65535"),
        ("[gateway]\nbody_mb_max = 0", "2: 'gateway.body_mb_max' is 0.0; it must be more than 0"),
        ("[gateway]\nplugins = ['trimm']", "2: there is no plugin 'trimm'; did you mean 'trim'?"),
        ("[gateway]\nplugins = 'trim'", "2: 'gateway.plugins' must be a list, not 'trim'"),
        ("[gateway]\norigins = ['chat.example']", "2: 'chat.example' is not an origin; write https://host"),
        ("[gateway]\nproxies = ['nginx']", "2: 'nginx' is not an address or a network; write 127.0.0.1 or 10.0.0.0/8"),
        ("[gateway.routes]\nthnik = 'echo'", "2: 'gateway.routes.thnik' is not known; did you mean 'think'?"),
        ("[gateway.routes]\nthink = 'ecko'", "2: there is no engine 'ecko'; did you mean 'echo'?"),
        ("[gateway.routes]\nthink = 'opnai,gpt'", "2: there is no engine 'opnai,gpt'; did you mean 'openai'?"),
        ("[gateway.routes]\ncustom_s = 0", "2: 'gateway.routes.custom_s' is 0.0; it must be more than 0"),
        ("[gateway.routes]\ncustom = 'router.py'", "2: 'router.py' names no function; write it as module:function"),
        ("[gateway.routes]\nlong_context_tokens = 0", "2: 'gateway.routes.long_context_tokens' is 0; it must be 1"),
        ("[gateway.routes]\nthink = 3", "2: 'gateway.routes.think' must be a text, not 3"),
        ("[gateway.projects.x]\n\nthink = 'ecko'", "3: there is no engine 'ecko'; did you mean 'echo'?"),
        ("[gateway.projects.x]\ncustom = 'a:b'", "2: 'gateway.projects.x.custom' is not known; "),
        (
            "[gateway.projects.x]\nimage = 'echo'",
            "2: images have one route for all; set `image` under [gateway.routes]",
        ),
        ("[gateway.sessions.x]\nthink = 'ecko'", "2: there is no engine 'ecko'; did you mean 'echo'?"),
        ("[gateway.fallback]\nthink = ['echo',\n'ecko']", "3: there is no engine 'ecko'; did you mean 'echo'?"),
        ("[gateway.fallback]\nthnik = []", "2: 'gateway.fallback.thnik' is not known; did you mean 'think'?"),
        ("[gateway.keys.a]\nmodels = []", "1: the key 'a' is empty; give it a `key` that cannot be guessed"),
        ("[gateway.keys.a]\nkey = 'x'\nexpires = 'soon'", "3: 'soon' is not a date; write it as 2030-01-31"),
        ("[gateway.keys.a]\nkey = 'x'\nbudget = {}", "3: the budget of 'a' has no limit; give `tokens` or `money`"),
        (
            "[gateway.keys.a]\nkey = 'x'\nbudget = {tokens = 1, window = 'dya'}",
            "3: 'gateway.keys.a.budget.window' must",
        ),
        (
            "[gateway.keys.a]\nkey = 'x'\n[gateway.keys.b]\nkey = 'x'",
            "4: the keys 'a' and 'b' are the same; change one",
        ),
        (
            "[gateway.keys.user]\nkey = 'x'",
            "1: the key 'user' has the name of the person at this machine, and would show their conversations; ",
        ),
        ("[gateway.keys.stop]\nkey = 'x'", "1: 'stop' cannot be the name of a person; give the key 'stop' another"),
        ("[gateway.keys.a]\nkey = 'x'\nperson = 'edit'", "1: 'edit' cannot be the name of a person; give the key 'a'"),
        ("gateway = 3", "1: 'gateway' must be a table of keys and values, not 3"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_line_and_the_nearest_word(tmp_path: Path, text: str, said: str):
    """C01: a bad file is a message with the line; an unknown key is an error with the nearest word."""
    assert sentence(lambda: loaded(tmp_path, text)).startswith(f"rondel.toml:{said}")


def test_all_mistakes_can_be_had_at_once(tmp_path: Path):
    write(
        tmp_path / "rondel.toml", "[gateway]\nport = 'x'\norigins = [1, 'y']\n[gateway.routes]\nthink = 'ecko'\nhm = 1"
    )
    mistakes: list[ConfigError] = []
    load(tmp_path, {"HOME": str(tmp_path)}, mistakes=mistakes)
    assert [mistake.line for mistake in sorted(mistakes, key=lambda m: m.line or 0)] == [2, 3, 3, 5, 6]


def test_the_image_agent_is_on_when_images_have_a_route(tmp_path: Path):
    """R04: the route is the engine that sees; unset means that nothing is done about images."""
    for route in ("", "image = ''", "image = 'default'"):
        assert loaded(tmp_path, f"[gateway.routes]\nthink = 'echo'\n{route}").gateway.plugins == ()
    (image,) = loaded(tmp_path, "[gateway.routes]\nimage = 'Gemini,flash'").gateway.plugins
    assert (image.name, image.enabled, image.parameters) == ("image", True, {"engine": "gemini:flash"})


def test_an_entry_for_the_image_agent_decides_what_it_says(tmp_path: Path):
    """I09: it can be turned off."""
    text = "gateway.routes.image = 'echo'\n[[gateway.plugins]]\nname = 'image'\n"
    (image,) = loaded(tmp_path, text + "forced = true").gateway.plugins
    assert (image.enabled, image.parameters) == (True, {"engine": "echo", "forced": True})
    (image,) = loaded(tmp_path, text + "enabled = false\nengine = 'local'").gateway.plugins
    assert (image.enabled, image.parameters) == (False, {"engine": "local"})


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_no_key_of_a_caller_is_in_the_explanation_the_repr_or_the_warnings(tmp_path: Path):
    config = loaded(tmp_path, mode=0o644)
    shown = {key: value for key, value, _ in explain(config)}
    assert "hunter2" not in repr((explain(config), config, config.gateway, config.warnings, config.exposed))
    assert shown["gateway.keys.alice.key"] == "***"
    assert (shown["gateway.keys.alice.models"], shown["gateway.keys.alice.expires"]) == ("work:*", "2031-01-31")
    assert (shown["gateway.port"], shown["gateway.routes.think"]) == ("9999", "Work,a")
    sources = {key: source for key, _, source in explain(config)}
    assert sources["gateway.routes.think"] == f"{tmp_path}/rondel.toml:17"
    assert sources["gateway.plugins[1].share"] == f"{tmp_path}/rondel.toml:13"
    assert sources["gateway.sessions_folder"] == "default"


def test_a_literal_key_that_others_may_read_keeps_the_gateway_from_starting(tmp_path: Path):
    """C04: the file's mode is 0600, or the key comes from a variable."""
    open_file = loaded(tmp_path, mode=0o640)
    said = sentence(lambda: refuse_exposed(open_file))
    assert said.startswith("rondel.toml:32: 'gateway.keys.bob.key' is written out, and others can read the file")
    assert "chmod 600 rondel.toml" in said
    assert len(open_file.exposed) == 1
    refuse_exposed(loaded(tmp_path, mode=0o600))
    refuse_exposed(loaded(tmp_path, FULL.replace('key = "hunter2"', 'key = "${BOB}"'), mode=0o644, BOB="b"))


# --- while it is in use -----------------------------------------------------------------------------------------------


def changes(path: Path, text: str) -> None:
    """Write the file so that its time differs, whatever the clock of the disk."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    write(path, text)
    os.utime(path, ns=(before + 1_000_000_000, before + 1_000_000_000))


def test_a_changed_file_is_taken_up_and_a_wrong_one_is_refused(tmp_path: Path):
    """C03: without a restart; a bad change leaves in force what was."""
    first = loaded(tmp_path, "engine = 'echo'")
    reloader = Reloader(first, {"HOME": str(tmp_path)})
    path = tmp_path / "rondel.toml"
    assert reloader.look() is None
    changes(path, "engine = 'echo'")
    assert reloader.look() is None, "it was only written again as it was"
    changes(path, "engine = 'local'")
    second = reloader.look()
    assert second is not None
    assert (second.engine, reloader.config) == ("local", second)
    changes(path, "engine = 'locl'")
    said = sentence(reloader.look)
    assert said == "rondel.toml:1: there is no engine 'locl'; did you mean 'local'?"
    assert reloader.config is second
    assert reloader.refused.endswith(said)
    assert reloader.look() is None, "each change is told once"
    path.unlink()
    assert sentence(reloader.look) == "rondel.toml: is no longer there; put it back, or stop the gateway"
    changes(path, "engine = 'echo'")
    assert reloader.look() == reloader.config
    assert (reloader.config.engine, reloader.refused) == ("echo", "")


def test_a_file_whose_keys_become_readable_is_refused(tmp_path: Path):
    config = loaded(tmp_path, "[gateway.keys.a]\nkey = 'hunter2'")
    reloader = Reloader(config, {"HOME": str(tmp_path)})
    (tmp_path / "rondel.toml").chmod(0o644)
    assert "'gateway.keys.a.key' is written out" in sentence(reloader.look)


def test_without_a_file_there_is_nothing_to_look_at():
    assert Reloader(Config()).look() is None


async def _until(ready: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not ready():
            await asyncio.sleep(0)


async def test_whoever_follows_is_told_of_changes_and_refusals(tmp_path: Path):
    """C03: the one who uses it may refuse as well, and the old one stays."""
    first = loaded(tmp_path, "engine = 'echo'")
    path = tmp_path / "rondel.toml"
    clock, reloader = VirtualClock(), Reloader(first, {"HOME": str(tmp_path)})
    taken: list[str] = []
    refused: list[str] = []

    async def changed(config: Config) -> None:
        if config.agent == "nobody":
            raise ConfigError("there is no agent 'nobody'")
        taken.append(config.engine)

    async with asyncio.TaskGroup() as group:
        following = group.create_task(reloader.follow(clock, changed, refused.append))
        for text in ("engine = 'local'", "engine = 3", "engine = 'echo'\nagent = 'nobody'"):
            await _until(lambda: clock.sleepers == 1)
            changes(path, text)
            clock.advance(PERIOD_S)
        await _until(lambda: clock.sleepers == 1)
        following.cancel()
    config = reloader.config
    assert taken == ["local"]
    assert [said.rpartition("rondel.toml")[2] for said in refused] == [
        ":1: 'engine' must be a text, not 3; the previous settings stay active",
        "there is no agent 'nobody'; the previous settings stay active",
    ]
    assert config.engine == "local"


def test_a_route_falls_back_to_the_next_table_key_by_key():
    """R07: a missing key falls back."""
    routes = MainRouteSettings(default="a", think="b")
    over = GatewaySettings().routes.over(routes)
    assert (over.default, over.think, over.long_context_tokens) == ("a", "b", 60_000)
