"""Callers may name any model: the engines that are made for them do not pile up."""

from __future__ import annotations

from rondel.gateway.server.setup import Pool
from rondel.testing import Echo


class Closing(Echo):
    closed = False

    async def aclose(self) -> None:
        self.closed = True


async def test_an_engine_that_nobody_uses_makes_room_and_is_made_again_when_it_is_wanted() -> None:
    made: list[Closing] = []

    def make(name: str) -> Closing:
        made.append(Closing(name))
        return made[-1]

    pool = Pool(make, 2)
    assert pool.keep("eyes") is pool.keep("eyes")
    used = pool.take("used")
    for name in ("a", "b"):
        assert pool.take(name) is pool.take(name)
        await pool.give_back([name, name])
    assert [engine.name for engine in made if engine.closed] == ["a", "b"]
    assert pool.take("used") is used
    await pool.give_back(["used", "used"])
    assert pool.take("a").name == "a"
    await pool.give_back(["a"])
    assert [engine.name for engine in made if not engine.closed] == ["eyes", "a"]
    await pool.close()
    assert all(engine.closed for engine in made)
    assert [engine.name for engine in made] == ["eyes", "used", "a", "b", "a"]
