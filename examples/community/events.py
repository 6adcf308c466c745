"""A cog of discord.py: people type `/event next`, and the model may call it, too."""

from __future__ import annotations

from discord import Embed, Interaction, app_commands
from discord.ext import commands

EVENTS = [("Sunday 10:00", "Bake-along: a plain loaf"), ("Wednesday 19:00", "Questions and crumbs")]


class Events(commands.GroupCog, name="event"):
    """What the community does."""

    @app_commands.command(name="next", description="When the community meets next")
    async def next_event(self, interaction: Interaction) -> None:
        embed = Embed(title="Coming up")
        for when, what in EVENTS:
            embed.add_field(name=when, value=what, inline=False)
        await interaction.response.send_message(embed=embed)


async def setup(bot: commands.Bot) -> None:
    await bot.add_cog(Events())
