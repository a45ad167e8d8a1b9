"""Maintenance reservations that keep a job from starting at once."""

import time

from vmcjob.errors import SchedulerError
from vmcjob.scheduler.slurm import commands

SOON_S = 60.0  # a job that starts within a minute waits for no maintenance


def describe_maintenance(wall_time_s: float, starts_at: float | None) -> str:
    """The maintenance that a job would wait for, and which wall time may start before it; or "".

    Args:
        wall_time_s: of the job.
        starts_at: when SLURM expects to start it, in seconds since the epoch.
    """
    now = time.time()
    if starts_at is None or starts_at < now + SOON_S:
        return ""
    for name, start, end in _maintenances():
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(end))
        if start <= now < end <= starts_at + SOON_S:
            return f"the maintenance reservation {name} lasts until {until}"
        if now + SOON_S < start < min(starts_at, now + wall_time_s):
            days, rest = divmod(int(start - now), 86400)
            left = f"{days}-{rest // 3600:02}:{rest // 60 % 60:02}:00"
            return (
                f"the maintenance reservation {name} comes first, until {until}; "
                f"a wall time below {left} (-t) may start before it"
            )
    return ""


def _maintenances() -> list[tuple[str, float, float]]:
    """Name, start and end of reservations for maintenance, the first one first."""
    try:
        text = commands.call("scontrol", "--oneliner", "show", "reservation")
    except SchedulerError:
        return []
    lines = [
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in text.splitlines()
    ]
    found = [
        (fields.get("ReservationName", ""), float(fields["StartTime"]), float(fields["EndTime"]))
        for fields in lines
        if "MAINT" in fields.get("Flags", "")
        and fields.get("StartTime", "").isdecimal()
        and fields.get("EndTime", "").isdecimal()
    ]
    return sorted(found, key=lambda item: item[1])
