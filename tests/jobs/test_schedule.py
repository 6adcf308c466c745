"""Schedules as values: every, at and cron in a time zone, active hours, and the two nights when clocks are set."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.errors import RondelError
from rondel.text.schedule import Schedule, parse, span_text

BERLIN = "Europe/Berlin"


def moment(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def shown(at: float | None, zone: str = "UTC") -> str:
    return "never" if at is None else datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")


def cron(line: str, zone: str = "UTC", **more: Any) -> Schedule:
    return parse({"cron": line, "zone": zone, "say": "hello", **more})


def times(schedule: Schedule, after: str, count: int, zone: str = "UTC") -> list[str]:
    at, found = moment(after, zone), list[str]()
    for _ in range(count):
        at = schedule.next_after(at)
        if at is None:
            break
        found.append(datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%m-%d %H:%M%z"))
    return found


# --- cron -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "after", "next"),
    [
        ("* * * * *", "2026-01-01 10:00:30", "2026-01-01 10:01"),
        ("0 9 * * 1-5", "2026-11-13 09:00", "2026-11-16 09:00"),  # a Friday, then Monday
        ("*/15 * * * *", "2026-01-01 10:01", "2026-01-01 10:15"),
        ("5-59/20 8-10 * * *", "2026-01-01 09:50", "2026-01-01 10:05"),
        ("10/20 * * * *", "2026-01-01 10:31", "2026-01-01 10:50"),
        ("0 0 1,15 * *", "2026-01-02 00:00", "2026-01-15 00:00"),
        ("0 12 * feb-MAR *", "2026-03-31 12:00", "2027-02-01 12:00"),
        ("30 6 * * Sat,sun", "2026-11-16 00:00", "2026-11-21 06:30"),
        ("0 0 * * 7", "2026-11-16 00:00", "2026-11-22 00:00"),
        ("0 0 * * fri-sun", "2026-11-14 00:00", "2026-11-15 00:00"),
        ("0 0 13 * 5", "2026-11-13 00:00", "2026-11-20 00:00"),  # both restricted: either one
        ("0 0 */2 * 1", "2026-11-02 00:00", "2026-11-09 00:00"),  # one with a star: both
        ("0 0 29 2 *", "2096-03-01 00:00", "2104-02-29 00:00"),  # 2100 is no leap year
        ("0 0 31 * *", "2026-01-31 00:00", "2026-03-31 00:00"),
        ("59 23 31 12 *", "2026-12-31 23:59", "2027-12-31 23:59"),
        ("0 9 L * *", "2026-02-01 00:00", "2026-02-28 09:00"),  # the last day of the month
        ("0 9 LW * *", "2026-01-01 00:00", "2026-01-30 09:00"),  # the last weekday: the 31st is a Saturday
        ("0 9 * * fri#2", "2026-11-01 00:00", "2026-11-13 09:00"),  # the second Friday
        ("0 9 * * 5L", "2026-11-01 00:00", "2026-11-27 09:00"),  # the last Friday
        ("@daily", "2026-01-01 10:00", "2026-01-02 00:00"),
        ("@HOURLY", "2026-01-01 10:00", "2026-01-01 11:00"),
        ("@weekly", "2026-11-16 00:00", "2026-11-22 00:00"),
        ("@monthly", "2026-11-16 00:00", "2026-12-01 00:00"),
        ("@yearly", "2026-11-16 00:00", "2027-01-01 00:00"),
    ],
)
def test_a_cron_line_says_when_next(line: str, after: str, next: str):
    """T13: cron."""
    assert shown(cron(line).next_after(moment(after))) == next


def test_a_cron_line_is_about_the_clock_of_its_zone():
    """T13: cron with a time zone."""
    schedule = cron("0 9 * * *", BERLIN)
    assert shown(schedule.next_after(moment("2026-01-10 00:00"))) == "2026-01-10 08:00"
    assert shown(schedule.next_after(moment("2026-07-10 00:00"))) == "2026-07-10 07:00"


def test_a_fixed_time_that_is_skipped_comes_with_the_skip_and_one_that_comes_twice_comes_once():
    assert times(cron("30 2 * * *", BERLIN), "2026-03-28 03:00", 2, BERLIN) == ["03-29 03:00+0200", "03-30 02:30+0200"]
    assert times(cron("30 2 * * *", BERLIN), "2026-10-24 03:00", 2, BERLIN) == ["10-25 02:30+0200", "10-26 02:30+0100"]
    assert times(cron("0,30 2 * * *", BERLIN), "2026-03-29 00:00", 2, BERLIN)[0] == "03-29 03:00+0200", "both at once"


def test_a_line_with_a_star_follows_the_clock_on_the_wall():
    half_hours = cron("*/30 * * * *", BERLIN)
    assert times(half_hours, "2026-03-29 01:29", 3, BERLIN) == [
        "03-29 01:30+0100",
        "03-29 03:00+0200",
        "03-29 03:30+0200",
    ]
    assert times(half_hours, "2026-10-25 01:59", 5, BERLIN) == [
        "10-25 02:00+0200",
        "10-25 02:30+0200",
        "10-25 02:00+0100",
        "10-25 02:30+0100",
        "10-25 03:00+0100",
    ]


def test_clocks_that_are_set_at_midnight_are_no_surprise():
    """In Lebanon the clock is set forward at midnight, in Paraguay it was set back at midnight."""
    assert times(cron("0 0 * * *", "Asia/Beirut"), "2026-03-28 12:00", 1, "Asia/Beirut") == ["03-29 01:00+0300"]
    assert times(cron("30 23 * * *", "America/Asuncion"), "2023-03-25 22:00", 2, "America/Asuncion") == [
        "03-25 23:30-0300",
        "03-26 23:30-0400",
    ]
    assert times(cron("*/30 1 29 * *", "Asia/Beirut"), "2026-03-28 12:00", 1, "Asia/Beirut") == ["03-29 01:00+0300"]
    assert times(cron("0 */2 29 * *", "Asia/Beirut"), "2026-03-28 12:00", 1, "Asia/Beirut") == ["03-29 02:00+0300"]
    wall = times(cron("30 * * * *", "America/Asuncion"), "2023-03-25 23:00", 3, "America/Asuncion")
    assert wall == ["03-25 23:30-0300", "03-25 23:30-0400", "03-26 00:30-0400"]


def test_clocks_that_change_by_half_an_hour_are_no_surprise():
    """On Lord Howe Island the clock goes from 02:00 to 02:30 in spring and from 02:00 to 01:30 in autumn."""
    zone = "Australia/Lord_Howe"
    halves = cron("*/30 1,2 * * *", zone)
    assert times(halves, "2026-04-05 01:00", 4, zone) == [
        "04-05 01:30+1100",
        "04-05 01:30+1030",
        "04-05 02:00+1030",
        "04-05 02:30+1030",
    ]
    assert times(halves, "2026-10-04 01:00", 2, zone) == ["10-04 01:30+1030", "10-04 02:30+1100"]
    assert times(cron("*/20 22 * * *", zone), "2026-10-04 01:00", 1, zone) == ["10-04 22:00+1100"]


@given(
    minute=st.sampled_from(["*", "*/7", "0", "13,44", "5-20/5"]),
    hour=st.sampled_from(["*", "2", "*/3", "1-4", "22,23,0"]),
    day=st.sampled_from(["*", "1", "28-31", "*/9"]),
    weekday=st.sampled_from(["*", "0", "1-5", "sun"]),
    zone=st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    start=st.integers(1_700_000_000, 1_800_000_000),
)
def test_the_next_time_is_what_a_watchman_would_see(
    minute: str, hour: str, day: str, weekday: str, zone: str, start: int
):
    """A watchman looks at the clock every minute; outside of the nights when clocks are set, he is right."""
    schedule = cron(f"{minute} {hour} {day} * {weekday}", zone)
    next = schedule.next_after(start)
    assert next is not None
    assert next > start
    local = datetime.fromtimestamp(next, ZoneInfo(zone))
    begin = datetime.fromtimestamp(start, ZoneInfo(zone))
    if local.utcoffset() != begin.utcoffset() or next - start > 3 * 86_400:
        return
    at = start - start % 60 + 60
    while at < next:
        wall = datetime.fromtimestamp(at, ZoneInfo(zone))
        assert not _fits(wall, minute, hour, day, weekday), wall
        at += 60
    assert _fits(local, minute, hour, day, weekday)


def _fits(wall: datetime, minute: str, hour: str, day: str, weekday: str) -> bool:
    def among(field: str, value: int, low: int, high: int) -> bool:
        for item in field.replace("sun", "0").split(","):
            span, _, step = item.partition("/")
            first, _, last = span.partition("-")
            begin, end = (low, high) if span == "*" else (int(first), int(last or first))
            if begin <= value <= end and (value - begin) % int(step or 1) == 0:
                return True
        return False

    dated, named = among(day, wall.day, 1, 31), among(weekday, wall.isoweekday() % 7, 0, 6)
    days = dated or named if "*" not in day[0] + weekday[0] else dated and named
    return among(minute, wall.minute, 0, 59) and among(hour, wall.hour, 0, 23) and days


# --- every, at, hours -------------------------------------------------------------------------------------------------


def test_a_short_time_without_a_unit_gets_the_unit_that_was_probably_meant():
    with pytest.raises(RondelError, match=r"^every '5' has no unit; write 5m$"):
        parse({"every": "5", "say": "x"}, now=1_000)


def test_every_counts_from_when_it_was_said_and_in_a_file_from_the_epoch():
    """T13: interval of at least 60 s."""
    asked = parse({"every": "1h 30m", "say": "x"}, now=1_000)
    assert [asked.next_after(1_000), asked.next_after(6_400), asked.next_after(100_000)] == [6_400, 11_800, 103_600]
    assert parse({"every": 3600, "say": "x"}).next_after(7_300) == 10_800


def test_at_is_one_time_and_then_over():
    """T13: at."""
    schedule = parse({"at": "2027-03-01 09:00", "zone": BERLIN, "say": "x"})
    assert shown(schedule.next_after(0)) == "2027-03-01 08:00"
    assert schedule.next_after(schedule.at) is None
    assert parse({"at": "2027-03-01T09:00:00+05:00", "say": "x"}).at == moment("2027-03-01 04:00")
    assert parse({"at": "in 20m", "say": "x"}, now=1_000).at == 2_200
    assert parse({"at": datetime(2027, 3, 1, 9, tzinfo=UTC), "say": "x"}).at == moment("2027-03-01 09:00")


@pytest.mark.parametrize(
    ("hours", "after", "next"),
    [
        ("09:00-17:00", "2026-01-10 10:00", "2026-01-10 11:00"),
        ("09:00-17:00", "2026-01-10 16:30", "2026-01-11 09:00"),
        ("22:00-06:00", "2026-01-10 22:30", "2026-01-10 23:00"),
        ("22:00-06:00", "2026-01-10 23:30", "2026-01-11 00:00"),
        ("22:00-06:00", "2026-01-10 05:30", "2026-01-10 22:00"),
        ("16:00-24:00", "2026-01-10 23:30", "2026-01-11 16:00"),
    ],
)
def test_nothing_is_said_outside_of_the_active_hours(hours: str, after: str, next: str):
    """T13: active hours, those over midnight included."""
    for schedule in (cron("0 * * * *", hours=hours), parse({"every": "1h", "hours": hours, "say": "x"})):
        assert shown(schedule.next_after(moment(after))) == next


def test_hours_are_those_of_the_zone():
    schedule = parse({"every": "1h", "hours": "09:00-17:00", "zone": "Asia/Tokyo", "say": "x"})
    assert shown(schedule.next_after(moment("2026-01-10 08:30"))) == "2026-01-11 00:00"


def test_what_was_missed_waits_for_the_active_hours():
    schedule = parse({"every": "1h", "hours": "09:00-17:00", "say": "x"})
    assert shown(schedule.active_from(moment("2026-01-10 03:00"))) == "2026-01-10 09:00"
    assert schedule.active_from(moment("2026-01-10 10:07")) == moment("2026-01-10 10:07")


def test_a_cron_line_may_need_many_days_to_fall_into_the_hours():
    schedule = cron("0 5 1 1 *", hours="04:00-06:00")
    assert shown(schedule.next_after(moment("2026-01-02 00:00"))) == "2027-01-01 05:00"


def test_people_read_what_a_schedule_is():
    assert (
        str(parse({"every": "1d 90m", "say": "x", "hours": "22:00-06:00"})) == "every 1 d 1 h 30 min, 22:00-06:00 UTC"
    )
    assert str(cron("0 9 * * 1-5", BERLIN)) == "0 9 * * 1-5 Europe/Berlin"
    assert str(parse({"at": "2027-03-01 09:00", "zone": BERLIN, "say": "x"})) == "at 2027-03-01 09:00 Europe/Berlin"
    assert span_text(61) == "1 min 1 s"


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "a schedule has exactly one of every, at and cron; it has none"),
        ({"every": 60, "cron": "* * * * *"}, "a schedule has exactly one of every, at and cron; it has every and cron"),
        ({"evry": 60}, "a schedule has no key 'evry'; did you mean 'every'?"),
        ({"every": 59}, "every 59 must be between 60 seconds and 366 days"),
        ({"every": "1y"}, "every '1y' is not a duration; write seconds, or '15m', '2h', '1d'"),
        ({"every": True}, "every True is not a duration"),
        ({"every": float("nan")}, "every nan is not a duration"),
        ({"every": "9" * 30}, "is not a duration"),
        ({"at": "tomorrow"}, "at 'tomorrow' is not a time; write it as '2027-03-01 09:00'"),
        ({"at": "in 20m"}, "at 'in 20m' is not a time"),
        ({"at": "2027-03-01 09:00", "hours": "09:00-10:00"}, "'hours' ('09:00-10:00') cannot be combined with 'at'"),
        ({"cron": "0 9 * *"}, "cron '0 9 * *' has 4 fields; it needs five: minute, hour, day, month, weekday"),
        ({"cron": "60 9 * * *"}, "cron '60 9 * * *': '60' is not a minute; use 0 to 59"),
        ({"cron": "0 9 * * mond"}, "cron '0 9 * * mond': 'mond' is not a day of the week; did you mean 'mon'?"),
        ({"cron": "0 22-2 * * *"}, "cron '0 22-2 * * *': '22-2' runs backwards; write it as 22-23,0-2"),
        ({"cron": "*/0 * * * *"}, "cron '*/0 * * * *': '0' is not a step for the minute; use 1 to 59"),
        ({"cron": "0 0 W * *"}, "cron '0 0 W * *': 'W' is not a day of the month; use 1 to 31"),
        ({"cron": "0 0 1-40 * *"}, "cron '0 0 1-40 * *': '40' is not a day of the month; use 1 to 31"),
        ({"cron": "9" * 5_000 + " 0 * * *"}, "is not a minute; use 0 to 59"),
        ({"cron": "0 0 0 * * *"}, "cron '0 0 0 * * *' has 6 fields; it needs five"),
        ({"cron": "٣ 0 * * *"}, "'٣' is not a minute"),
        ({"cron": "0 0 30 2 *"}, "cron '0 0 30 2 *' names a day that never comes"),
        ({"cron": "@dayly"}, "cron '@dayly' is unknown; did you mean '@daily'?"),
        ({"cron": "@reboot"}, "cron '@reboot' is unknown"),
        ({"cron": 5}, "cron is a text, not 5"),
        ({"cron": "0 3 * * *", "hours": "09:00-17:00"}, "never comes within the active hours '09:00-17:00'"),
        ({"every": 60, "zone": "Europe/Berln"}, "there is no time zone 'Europe/Berln'; did you mean 'Europe/Berlin'?"),
        ({"every": 60, "zone": "../etc/passwd"}, "there is no time zone '../etc/passwd'"),
        ({"every": 60, "hours": "9-17"}, "hours '9-17' are not hours of a day; write them as '09:00-17:00'"),
        ({"every": 60, "hours": "09:00-25:00"}, "hours '09:00-25:00' are not hours of a day"),
        ({"every": 60, "hours": "00:00-24:00"}, "hours '00:00-24:00' start where they end; leave them out"),
        ({"every": 60, "say": "  "}, "a schedule needs a text to say; give it as `say`"),
        ({"every": 60, "say": "x" * 5_000}, "the text of a schedule has 5,000 characters; shorten it to 4,000"),
    ],
)
def test_a_mistake_is_one_sentence(wrong: dict[str, Any], said: str):
    with pytest.raises(RondelError, match=re.escape(said)) as error:
        parse({"say": "hello", **wrong})
    assert "\n" not in str(error.value)


def test_a_time_that_is_over_is_refused_when_it_is_asked_for():
    now = moment("2026-01-01 10:00")
    with pytest.raises(RondelError, match=r"at '2025-12-31 09:00' is in the past; it is now 2026-01-01 10:00 UTC"):
        parse({"at": "2025-12-31 09:00", "say": "x"}, now=now)


def test_finding_the_next_time_is_cheap_on_any_day():
    """Ten thousand schedules are armed at a start: no line may take long."""
    schedule = cron("* * * * *", BERLIN)
    at = moment("2026-03-27 00:00")
    until = at + timedelta(days=4).total_seconds()
    count = 0
    while at < until:
        at = schedule.next_after(at) or until
        count += 1
        at += 3_600
    assert count == 95
